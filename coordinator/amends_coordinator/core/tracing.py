"""Trace and span ids of a saga, made from what the ledger has of it: the same on every node and after every crash.

A participant hangs its own span under an attempt's at the moment of the call, long before the saga's spans are emitted.
So the ids can't be drawn by chance: they are computed from the saga's id and creation, the step, the direction and the
attempt's number, and whoever emits the spans later computes the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amends_coordinator.core.ids import StepName
    from amends_coordinator.core.saga import Saga
    from amends_coordinator.core.states import Direction

SAMPLED = 1
_RANGE = 1 << 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The trace that a saga belongs to.

    `trace_id` has 32 hexadecimal digits, `parent_span_id` 16 ("": the saga is the root). `sampled`: whether
    participants are asked to record, and whether the saga is emitted even if it commits.
    """

    trace_id: str
    parent_span_id: str
    sampled: bool


def trace_of(saga: Saga, *, ratio: float) -> Trace:
    """The starter's trace, which also says whether it is sampled; without one the saga's own, sampled by chance.

    Args:
        saga: the saga.
        ratio: of the sagas whose starter has no trace, how many are sampled, from 0 to 1. The saga's id decides, so
            every node decides alike.
    """
    if saga.traceparent:
        _, trace_id, parent_span_id, flags = saga.traceparent.split("-")[:4]
        return Trace(trace_id=trace_id, parent_span_id=parent_span_id, sampled=bool(int(flags, 16) & SAMPLED))
    trace_id = _digest(_origin(saga), size=16)
    return Trace(trace_id=trace_id, parent_span_id="", sampled=int(trace_id[16:], 16) < ratio * _RANGE)


def saga_span_id(saga: Saga) -> str:
    """Id of the saga's own span: 16 hexadecimal digits."""
    return _digest(_origin(saga), size=8)


def attempt_span_id(saga: Saga, step: StepName, direction: Direction, number: int) -> str:
    """Id of one attempt's span: 16 hexadecimal digits."""
    return _digest(f"{_origin(saga)}/{step}/{direction}/{number}", size=8)


def attempt_traceparent(saga: Saga, step: StepName, direction: Direction, number: int, *, ratio: float) -> str:
    """The W3C `traceparent` that goes with an attempt. Arguments as of `trace_of` and `attempt_span_id`."""
    trace = trace_of(saga, ratio=ratio)
    return f"00-{trace.trace_id}-{attempt_span_id(saga, step, direction, number)}-{int(trace.sampled):02x}"


def _origin(saga: Saga) -> str:
    """What makes the saga another than one of the same id in another ledger: when it was made."""
    return f"{saga.id}/{saga.created_time}"


def _digest(text: str, *, size: int) -> str:
    return blake2b(text.encode(), digest_size=size).hexdigest()
