"""Tests of single modules of the command line."""
