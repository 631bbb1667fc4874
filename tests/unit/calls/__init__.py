"""Tests of the adapters that call participants."""
