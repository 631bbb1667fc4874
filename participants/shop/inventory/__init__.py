"""Inventory: the stock and what is reserved of it."""
