"""The demo: four orders over real processes, with a late answer and a crash, and the books checked at the end."""
