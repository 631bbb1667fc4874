"""Generated from the protos beside the same path; see `make proto`."""
