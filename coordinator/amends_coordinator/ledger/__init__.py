"""Adapters of the ledger port."""
