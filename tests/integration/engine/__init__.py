"""The engine over real gRPC and a real ledger, in the test's own process where a test has to look inside."""
