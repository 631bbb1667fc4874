"""Idempotency keys as UUIDs, and new saga ids."""

from __future__ import annotations

import secrets
import time
import uuid

KEY_NAMESPACE = uuid.UUID("5b0a8a5e-6d5b-5c1e-9a55-7c1d3b1c0a11")
"""The UUIDv5 namespace of idempotency keys. It never changes: providers remember the UUIDs made with it."""


def key_uuid(ledger_name: str, key: str) -> uuid.UUID:
    """The UUID form of an idempotency key, as the metadata `amends-key-uuid` carries it.

    Arguments:
        ledger_name: the coordinator's ledger (`amends-ledger`): staging and production may share a participant.
        key: the idempotency key, "{saga_id}/{step}/{direction}". None of its three parts has a slash, so the joined
            name is unambiguous whatever the ledger is called.

    Returns:
        UUIDv5 of "{ledger_name}/{key}" in `KEY_NAMESPACE`.
    """
    return uuid.uuid5(KEY_NAMESPACE, f"{ledger_name}/{key}")


def new_saga_id() -> str:
    """A new UUIDv7 as text (RFC 9562): milliseconds since 1970, then chance, so that later ids sort later."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds & (2**48 - 1)) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 7 << 76  # the version
    value = value & ~(0b11 << 62) | 0b10 << 62  # the variant
    return str(uuid.UUID(int=value))
