"""The generated messages and stubs of shop.shipping.v1."""
