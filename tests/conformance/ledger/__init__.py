"""The guarantees of the ledger port, asserted of every adapter."""
