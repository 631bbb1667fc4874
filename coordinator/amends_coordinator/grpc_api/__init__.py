"""Thin servicers: validate, map, call the engine, map errors."""
