"""Notifications: the letters to customers."""
