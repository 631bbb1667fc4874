"""The timelines of semantics that once broke a simpler rule, each played again over real gRPC on both databases."""
