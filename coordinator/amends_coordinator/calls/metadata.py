"""The metadata that goes with every attempt: what a participant needs to do its work once, and to undo it."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

import grpc.aio

from amends_coordinator.definitions.keys import key_uuid

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from amends_coordinator.core.ids import Instant, StepName
    from amends_coordinator.core.states import Direction, StepKind
    from amends_coordinator.ports.participants import CallRequest


class Pairs(grpc.aio.Metadata):
    """Metadata as the pairs that it is made of, to be sent and nothing else. gRPC's own class sorts them into a
    dictionary of lists first and takes that apart again, which costs more than all the rest of building them.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._pairs = pairs  # and no `super().__init__()`: it makes the dictionary

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)


def call_metadata(request: CallRequest, *, ledger_name: str, action_target: str | None) -> list[tuple[str, str]]:
    """The metadata of one attempt. Every value is ASCII: ids, names and keys are by their patterns.

    Args:
        request: the attempt.
        ledger_name: the ledger's name.
        action_target: on a compensation "same" if this participant was called with the action, "other" if another was.
    """
    pairs: list[tuple[str, str]] = [
        ("idempotency-key", request.key),
        ("amends-key-uuid", key_uuid(ledger_name, request.key)),
        ("amends-saga-id", request.saga_id),
        *_of_every_call(ledger_name, request.step, request.kind, request.direction),
        ("amends-attempt", str(request.attempt)),
        ("amends-step-time", rfc3339(request.step_time)),
    ]
    if request.action_key is not None:
        pairs.append(("amends-action-key", request.action_key))
        pairs.append(("amends-action-key-uuid", key_uuid(ledger_name, request.action_key)))
    if action_target is not None:
        pairs.append(("amends-action-target", action_target))
    if request.traceparent:
        pairs.append(("traceparent", request.traceparent))
    if request.tracestate:
        pairs.append(("tracestate", request.tracestate))
    return pairs


@lru_cache(maxsize=4_096)
def _of_every_call(
    ledger_name: str, step: StepName, kind: StepKind, direction: Direction
) -> tuple[tuple[str, str], ...]:
    """What all calls of a step share in every saga."""
    return (
        ("amends-ledger", ledger_name),
        ("amends-step", step),
        ("amends-kind", kind.value.lower()),
        ("amends-direction", direction.value.lower()),
    )


def rfc3339(instant: Instant) -> str:
    """An instant as RFC 3339 in UTC with microseconds: "2026-11-30T09:58:23.000000Z"."""
    seconds, microseconds = divmod(instant, 1_000_000)
    return f"{_whole_seconds(seconds)}.{microseconds:06d}Z"


@lru_cache(maxsize=64)
def _whole_seconds(seconds: int) -> str:
    """Most calls of a busy second share its text."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]
