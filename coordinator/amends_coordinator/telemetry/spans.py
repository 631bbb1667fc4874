"""A saga as spans, from what the ledger has of it: one for the saga, one for each attempt of each call.

Pure: the same saga gives the same spans wherever and how often it is asked. Their ids are those that participants were
told at call time (`core.tracing`), so a trace is whole whatever crashed in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from amends_coordinator.core.states import Outcome, SagaState
from amends_coordinator.core.tracing import attempt_span_id, saga_span_id, trace_of
from amends_coordinator.telemetry import names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from amends_coordinator.core.ids import Instant
    from amends_coordinator.core.saga import Attempt, Intent, Saga
    from amends_coordinator.core.tracing import Trace

OK = "OK"
TEXT_LIMIT = 1_024
"""The longest error text in a span, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something at one moment of a span."""

    name: str
    time: Instant
    attributes: Mapping[str, str | int | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span. `error` says why it counts as failed; None: it doesn't. `is_call`: it is the client's end of a call."""

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str
    start_time: Instant
    end_time: Instant
    attributes: Mapping[str, str | int | bool]
    events: tuple[Event, ...] = ()
    error: str | None = None
    is_call: bool = False


def spans_of(saga: Saga, *, ratio: float) -> list[Span]:
    """All spans of a saga, the saga's own first. A call in flight has none yet: see `spans_of_call`.

    Args:
        saga: with its intents; it has ended, or waits for a person.
        ratio: as of `core.tracing.trace_of`.
    """
    trace = trace_of(saga, ratio=ratio)
    root = _of_saga(saga, trace)
    return [root, *(span for intent in saga.intents for span in _of_call(saga, trace, intent))]


def spans_of_call(saga: Saga, intent: Intent, *, ratio: float) -> list[Span]:
    """The spans of one call, which ended after its saga had. Arguments as of `spans_of`."""
    return _of_call(saga, trace_of(saga, ratio=ratio), intent)


def _of_call(saga: Saga, trace: Trace, intent: Intent) -> list[Span]:
    ended = intent.attempts[:-1] if intent.in_flight else intent.attempts
    return [_of_attempt(saga, trace, intent, attempt) for attempt in ended]


def _of_saga(saga: Saga, trace: Trace) -> Span:
    attributes: dict[str, str | int | bool] = {
        names.TRACE_SAGA_ID: saga.id,
        names.TRACE_DEFINITION: saga.plan.name,
        names.TRACE_VERSION: saga.plan.version,
        names.TRACE_STATE: saga.state.value,
    }
    if saga.unproven:
        attributes[names.TRACE_UNPROVEN] = True
    if left_out := sum(sum(intent.attempts_left_out.values()) for intent in saga.intents):
        attributes[names.TRACE_LEFT_OUT] = left_out
    error = None
    if saga.state is not SagaState.COMMITTED:
        error = saga.failure.reason if saga.failure is not None else saga.state.value
    return Span(
        name=f"saga {saga.plan.name}",
        trace_id=trace.trace_id,
        span_id=saga_span_id(saga),
        parent_span_id=trace.parent_span_id,
        start_time=saga.created_time,
        # A clock may have been set back meanwhile.
        end_time=max(saga.created_time, saga.updated_time if saga.ended_time is None else saga.ended_time),
        attributes=attributes,
        events=tuple(sorted(_events(saga), key=lambda event: event.time)),
        error=error,
    )


def _events(saga: Saga) -> Iterator[Event]:
    if saga.failure is not None:
        yield Event(
            name=names.EVENT_FAILURE,
            time=saga.failure.time,
            attributes={
                names.TRACE_STEP: saga.failure.step or "",
                names.TRACE_REASON: saga.failure.reason,
                names.TRACE_MESSAGE: saga.failure.message[:TEXT_LIMIT],
            },
        )
    for letter in saga.dead_letters:
        about: dict[str, str | int | bool] = {
            names.TRACE_STEP: letter.step or "",
            names.TRACE_DIRECTION: letter.direction.value.lower() if letter.direction else "",
            names.TRACE_REASON: letter.reason.value,
        }
        yield Event(name=names.EVENT_DEAD_LETTER_OPENED, time=letter.opened_time, attributes=about)
        if letter.closed_time is not None:
            yield Event(name=names.EVENT_DEAD_LETTER_CLOSED, time=letter.closed_time, attributes=about)


def _of_attempt(saga: Saga, trace: Trace, intent: Intent, attempt: Attempt) -> Span:
    attributes: dict[str, str | int | bool] = {
        names.RPC_SYSTEM: names.GRPC,
        names.RPC_METHOD: intent.method,
        names.TRACE_SAGA_ID: saga.id,
        names.TRACE_STEP: intent.step,
        names.TRACE_DIRECTION: intent.direction.value.lower(),
        names.TRACE_ATTEMPT: attempt.number,
        names.TRACE_NODE: attempt.node,
    }
    if intent.participant:
        attributes[names.TRACE_PARTICIPANT] = intent.participant
    outcome = Outcome.UNKNOWN if attempt.outcome is None else attempt.outcome
    attributes[names.TRACE_OUTCOME] = outcome.value.lower()
    if attempt.status_code:
        attributes[names.RPC_STATUS_CODE] = attempt.status_code
    error = None
    if attempt.status_code != OK or outcome is not Outcome.SUCCEEDED:
        error = attributes[names.ERROR_TYPE] = attempt.status_code or outcome.value.lower()
    is_last = attempt is intent.attempts[-1]
    return Span(
        name=intent.method,
        trace_id=trace.trace_id,
        span_id=attempt_span_id(saga, intent.step, intent.direction, attempt.number),
        parent_span_id=saga_span_id(saga),
        start_time=attempt.start_time,
        # One that was cut off by a crash has no end of its own: the ledger knows when it was found.
        end_time=max(attempt.start_time, intent.updated_time if attempt.end_time is None else attempt.end_time),
        attributes=attributes,
        events=_last_words(intent) if is_last and error is not None else (),
        error=error,
        is_call=True,
    )


def _last_words(intent: Intent) -> tuple[Event, ...]:
    """What the participant said, which the ledger keeps of the last attempt that failed."""
    if not intent.last_error:
        return ()
    said = {names.TRACE_MESSAGE: intent.last_error[:TEXT_LIMIT]}
    return (Event(name=names.EVENT_ERROR, time=intent.updated_time, attributes=said),)
