"""Drives sagas: feeds events to the core, makes its records durable, carries out its effects."""
