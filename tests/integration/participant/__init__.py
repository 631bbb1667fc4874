"""Tests of participants over real gRPC, with a registry that stands in for the coordinator."""
