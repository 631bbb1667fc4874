"""Protocols that the engine needs from the outside, each with its guarantees."""
