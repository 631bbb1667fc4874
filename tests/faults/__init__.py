"""Every fault at every call of the shop's orders and the bank's transfers, and planted bugs that are found so."""
