"""Suites that every adapter of a port passes."""
