"""What only one adapter of the ledger does, or does in a way that the port doesn't tell."""
