"""The metadata that goes with every attempt: what a participant needs to do its work once, and to undo it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from amends_coordinator.definitions.keys import key_uuid

if TYPE_CHECKING:
    from amends_coordinator.core.ids import Instant
    from amends_coordinator.ports.participants import CallRequest


def call_metadata(request: CallRequest, *, ledger_name: str) -> tuple[tuple[str, str], ...]:
    """The metadata of one attempt. Every value is ASCII: ids, names and keys are by their patterns."""
    pairs = [
        ("idempotency-key", str(request.key)),
        ("amends-key-uuid", key_uuid(ledger_name, request.key)),
        ("amends-ledger", ledger_name),
        ("amends-saga-id", str(request.saga_id)),
        ("amends-step", str(request.step)),
        ("amends-kind", request.kind.value.lower()),
        ("amends-direction", request.direction.value.lower()),
        ("amends-attempt", str(request.attempt)),
        ("amends-step-time", rfc3339(request.step_time)),
    ]
    if request.action_key is not None:
        pairs.append(("amends-action-key", str(request.action_key)))
        pairs.append(("amends-action-key-uuid", key_uuid(ledger_name, request.action_key)))
    if request.action_target is not None:
        pairs.append(("amends-action-target", request.action_target))
    if request.traceparent:
        pairs.append(("traceparent", request.traceparent))
    if request.tracestate:
        pairs.append(("tracestate", request.tracestate))
    return tuple(pairs)


def rfc3339(instant: Instant) -> str:
    """An instant as RFC 3339 in UTC with microseconds: "2026-11-30T09:58:23.000000Z"."""
    seconds, microseconds = divmod(instant, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}.{microseconds:06d}Z"
