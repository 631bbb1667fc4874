"""The fingerprint of a saga's input that stays when retention has removed the input itself."""

from __future__ import annotations

import hashlib

RECIPE = "sha256/deterministic"
"""The recipe's name is stored with each hash, because protobuf doesn't promise the same bytes across its versions."""


def input_hash(canonical_input: bytes) -> bytes:
    """The SHA-256 of an input that was serialised deterministically; 32 bytes."""
    return hashlib.sha256(canonical_input).digest()
