"""The public API over real gRPC, on the ledger in memory."""
