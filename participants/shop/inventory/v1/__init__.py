"""The generated messages and stubs of shop.inventory.v1."""
