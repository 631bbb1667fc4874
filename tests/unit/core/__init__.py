"""Tests of the pure core, one decision at a time and as stories."""
