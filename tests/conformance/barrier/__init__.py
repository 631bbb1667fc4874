"""One suite for the barrier, run on every database and with both kinds of session, over real gRPC."""
