"""Payments: what is set aside on cards and taken from them."""
