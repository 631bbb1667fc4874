"""The fingerprint of a saga's input that stays when retention has removed the input itself."""

from __future__ import annotations

import hashlib

RECIPE = "sha256/deterministic"
"""The recipe's name is stored with each hash, because protobuf doesn't promise the same bytes across its versions."""


def is_hash_of(canonical_input: bytes, *, value: bytes, recipe: str) -> bool:
    """Whether a hash that was kept is that of this input. False also where another release made it by a recipe that
    this one doesn't know: nothing says then that the inputs are equal.
    """
    return recipe == RECIPE and value == input_hash(canonical_input)


def input_hash(canonical_input: bytes) -> bytes:
    """The SHA-256 of an input that was serialised deterministically; 32 bytes."""
    return hashlib.sha256(canonical_input).digest()
