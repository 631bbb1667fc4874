"""Shipping: the parcels that are on their way."""
