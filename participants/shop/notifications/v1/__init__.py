"""The generated messages and stubs of shop.notifications.v1."""
