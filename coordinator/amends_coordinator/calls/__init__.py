"""Adapters that call participants."""
