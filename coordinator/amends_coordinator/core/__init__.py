"""Pure decisions: no await, clock, randomness, wire format or database."""
