"""Publishing, checked without a database."""
