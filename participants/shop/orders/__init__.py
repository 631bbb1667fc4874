"""Orders: what customers want from the shop."""
