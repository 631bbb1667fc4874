"""The definitions of the timelines: steps whose methods keep one of three promises, with small budgets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from amends import Method, Retry, Saga, Step, method
from timeline.v1.timeline_pb2 import (
    DoRequest,
    DoResponse,
    FindRequest,
    TimelineInput,
    UndoRequest,
    UndoResponse,
)
from timeline.v1.timeline_pb2_grpc import BarrierServiceServicer, KeyServiceServicer, PlainServiceServicer

if TYPE_CHECKING:
    from collections.abc import Sequence

Timeline: TypeAlias = Saga[TimelineInput, None]


@dataclass(frozen=True, slots=True)
class Promise:
    """The methods that keep one promise."""

    do: Method[..., DoRequest, DoResponse]
    undo: Method[..., UndoRequest, UndoResponse]
    find: Method[..., FindRequest, DoResponse]


GUARDED = Promise(
    method(BarrierServiceServicer.Do, DoRequest, DoResponse),
    method(BarrierServiceServicer.Undo, UndoRequest, UndoResponse),
    method(BarrierServiceServicer.Find, FindRequest, DoResponse),
)
KEYED = Promise(
    method(KeyServiceServicer.Do, DoRequest, DoResponse),
    method(KeyServiceServicer.Undo, UndoRequest, UndoResponse),
    method(KeyServiceServicer.Find, FindRequest, DoResponse),
)
UNPROMISED = Promise(
    method(PlainServiceServicer.Do, DoRequest, DoResponse),
    method(PlainServiceServicer.Undo, UndoRequest, UndoResponse),
    method(PlainServiceServicer.Find, FindRequest, DoResponse),
)

ATTEMPT = timedelta(seconds=20)
"""Longer than anything that is answered; where a timeline waits for a deadline it has one of its own."""

SILENT = timedelta(milliseconds=300)
"""The timeout of a call to which nothing is answered."""

SHORT = Retry(
    initial_delay=timedelta(milliseconds=10),
    maximum_delay=timedelta(milliseconds=50),
    total_timeout=timedelta(milliseconds=150),
    maximum_refusal_count=3,
)
"""Over in a moment: a handful of answers that were lost, fewer on a busy machine."""

REFUSALS = Retry(
    initial_delay=timedelta(milliseconds=10),
    maximum_delay=timedelta(milliseconds=50),
    total_timeout=timedelta(seconds=60),
    maximum_refusal_count=3,
)
"""Three refusals, however long they take."""

LONG = Retry(
    initial_delay=timedelta(milliseconds=10),
    maximum_delay=timedelta(milliseconds=50),
    total_timeout=timedelta(seconds=60),
    maximum_refusal_count=1_000,
)
"""Lasts for longer than any timeline."""


def undoable(
    saga: Timeline,
    name: str,
    promise: Promise,
    *,
    timeout: timedelta = ATTEMPT,
    retry: Retry = LONG,
    undo_retry: Retry = LONG,
    findable: bool = False,
    after: Sequence[Step[DoRequest, DoResponse]] | None = None,
) -> Step[DoRequest, DoResponse]:
    """Adds a compensatable step whose undo finds its work by key; `findable`: it can be looked up."""
    step = saga.step(name, promise.do(name=name), timeout=timeout, retry=retry, after=after)
    step.compensated_by(promise.undo(name=name), by_key=True, timeout=ATTEMPT, retry=undo_retry)
    if findable:
        step.looked_up_by(promise.find(name=name), timeout=ATTEMPT, retry=SHORT)
    return step


def timeline(name: str, *, timeout: timedelta = timedelta(minutes=5)) -> Timeline:
    """A saga without steps yet."""
    return Saga(name, input=TimelineInput, timeout=timeout)
