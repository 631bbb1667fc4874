"""Tests of the barrier's parts that need no server."""
