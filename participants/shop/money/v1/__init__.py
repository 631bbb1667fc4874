"""The generated messages and stubs of shop.money.v1."""
