"""Rehearsals: virtual time, gRPC without a network, and the seam for faults."""
