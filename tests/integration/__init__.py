"""Tests of parts together: real processes, files and ports."""
