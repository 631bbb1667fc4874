"""The ledger's schema, one revision per file in `versions`. `migrate` runs them."""
