"""Money: the amount that the services share."""
