"""What the reference participants share: each idempotency key's work done once, on a SQLite database of their own."""
