"""Unit tests of the API: what a request may say, and what it is answered."""
