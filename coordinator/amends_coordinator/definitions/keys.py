"""The UUID form of an idempotency key, for providers that want short keys or UUIDs."""

from __future__ import annotations

from hashlib import sha1
from uuid import UUID

KEY_NAMESPACE = UUID("5b0a8a5e-6d5b-5c1e-9a55-7c1d3b1c0a11")
"""The namespace of every key's UUIDv5. Never changed: the SDK has the same, and participants remember what it gave."""

_BEGUN = sha1(KEY_NAMESPACE.bytes, usedforsecurity=False)
"""The hash of what every key's name begins with: to be copied, never changed."""

_VARIANT = {digit: f"{int(digit, 16) & 0b0011 | 0b1000:x}" for digit in "0123456789abcdef"}
"""A hexadecimal digit with its two highest bits as in every UUID of RFC 9562."""


def key_uuid(ledger_name: str, key: str) -> str:
    """The UUIDv5 of a key: the same on every node and after every crash, another one in another ledger (S2)."""
    # What uuid.uuid5 does, without its objects and from a hash that is begun already: this is made for every call.
    hashed = _BEGUN.copy()
    hashed.update(f"{ledger_name}/{key}".encode())
    text = hashed.hexdigest()
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{_VARIANT[text[16]]}{text[17:20]}-{text[20:32]}"
