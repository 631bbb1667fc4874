"""Tests of the reference shop: its services, its process, and the demo's audit."""
