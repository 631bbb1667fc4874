"""Who asks for something to be done to a saga: what is known of them, and what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amends_coordinator.grpc_api.validation import CLAIM_LIMIT_BYTES
from amends_coordinator.ports.driving import Person

if TYPE_CHECKING:
    from amends_coordinator.grpc_api.handlers import Context
    from amends_coordinator.grpc_api.validation import Checks

CLAIM_KEY = "amends-actor"
"""The metadata in which a request may say who makes it."""


def claimed_actor(checks: Checks, field: str, context: Context) -> str:
    """Who the request says it is from: its own field, else its metadata; "" where it says nothing."""
    if field:
        return checks.words("claimed_actor", field, limit_bytes=CLAIM_LIMIT_BYTES)
    values = (value for key, value in context.invocation_metadata() or () if key == CLAIM_KEY)
    value = next(values, "")
    return checks.words(CLAIM_KEY, value, limit_bytes=CLAIM_LIMIT_BYTES) if isinstance(value, str) else ""


def person(context: Context, claim: str, reason: str) -> Person:
    """Who asks. Access isn't controlled, so all that is known of them is where the request came from."""
    return Person(actor=f"unauthenticated:{context.peer()}", claimed_actor=claim, reason=reason)
