"""Tests that keep README.md and docs/ true."""
