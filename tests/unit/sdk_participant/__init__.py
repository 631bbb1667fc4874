"""Tests of the parts that a participant is made of."""
