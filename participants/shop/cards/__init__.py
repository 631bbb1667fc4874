"""The card provider: another company, which the shop reaches over HTTP and whose books are its own."""
