"""amends: write sagas over your own gRPC services, with types, and let the coordinator make amends when one fails."""
