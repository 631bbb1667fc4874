"""The command line as people use it: real protoc, real gRPC."""
