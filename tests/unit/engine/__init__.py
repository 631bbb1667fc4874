"""The engine with real ledgers and participants that live in the test."""
