"""Benchmarks: ratios taken in one run on one machine, printed as `key=value` lines."""
