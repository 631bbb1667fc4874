"""The UUID form of an idempotency key, for providers that want short keys or UUIDs."""

from __future__ import annotations

from hashlib import sha1
from uuid import UUID

KEY_NAMESPACE = UUID("5b0a8a5e-6d5b-5c1e-9a55-7c1d3b1c0a11")
"""The namespace of every key's UUIDv5. Never changed: the SDK has the same, and participants remember what it gave."""

_NAMESPACE_BYTES = KEY_NAMESPACE.bytes


def key_uuid(ledger_name: str, key: str) -> str:
    """The UUIDv5 of a key: the same on every node and after every crash, another one in another ledger (S2)."""
    # What uuid.uuid5 does, without its objects: this is made for every call.
    digest = bytearray(sha1(_NAMESPACE_BYTES + f"{ledger_name}/{key}".encode(), usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
