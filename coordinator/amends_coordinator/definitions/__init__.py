"""Saga definitions: registration checks, descriptor pools, compiled bindings; protobuf without I/O."""
