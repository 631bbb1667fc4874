"""Each idempotency key's work done once, in one transaction with a memory of it."""
