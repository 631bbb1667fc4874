"""What a person sees with grpcurl, and what reflection tells any client."""
