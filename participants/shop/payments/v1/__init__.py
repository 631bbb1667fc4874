"""The generated messages and stubs of shop.payments.v1."""
