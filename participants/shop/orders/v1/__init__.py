"""The generated messages and stubs of shop.orders.v1."""
