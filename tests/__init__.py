"""The tests; docs/invariants.md says which promise each of them guards."""
