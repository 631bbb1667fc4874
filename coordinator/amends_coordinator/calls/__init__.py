"""The participants port over gRPC: channels, metadata, what an answer's code and trailers say, turns at full instances.

It never repeats a call by itself, and it never raises: what it can't know is an outcome, too.
"""
