"""The UUID form of an idempotency key, for providers that want short keys or UUIDs."""

from __future__ import annotations

from uuid import UUID, uuid5

KEY_NAMESPACE = UUID("5b0a8a5e-6d5b-5c1e-9a55-7c1d3b1c0a11")
"""The namespace of every key's UUIDv5. Never changed: the SDK has the same, and participants remember what it gave."""


def key_uuid(ledger_name: str, key: str) -> str:
    """The UUIDv5 of a key: the same on every node and after every crash, another one in another ledger (S2)."""
    return str(uuid5(KEY_NAMESPACE, f"{ledger_name}/{key}"))
