"""What the engine needs from the outside, and what it offers to the API: Protocols with their guarantees.

No code that does anything; an adapter's own exceptions never pass a port.
"""
