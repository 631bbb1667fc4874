"""Sagas that no later decision can tell apart are made one: times are relative to now, counts end at their limits.

Left out is what the core never reads: texts, closed dead letters, attempts before the last one, the order of rows.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from amends_coordinator.core.ids import DeadLetterId, Instant, NodeId, SagaId, StepName
from amends_coordinator.core.plan import Plan, StepPlan
from amends_coordinator.core.saga import Attempt, DeadLetter, Failure, Intent, Saga
from amends_coordinator.core.states import (
    DeadLetterReason,
    Direction,
    Guarantee,
    IntentState,
    Resolution,
    SagaState,
)
from tests.properties.explore.shapes import FAR_US, GRACE_US, TICK_US

NODE = NodeId("node-1")
MOST_ATTEMPTS = 2
"""The core asks whether an attempt is the first, never which later one it is: the plans' delays are all alike."""

OPEN_STATES = frozenset({IntentState.PENDING, IntentState.UNKNOWN, IntentState.PARKED})


class LetterKey(NamedTuple):
    """A dead letter that matters."""

    step: StepName | None
    direction: Direction | None
    reason: DeadLetterReason
    is_open: bool


class IntentKey(NamedTuple):
    """What matters of an intent."""

    step: StepName
    direction: Direction
    state: IntentState
    attempt: int
    started: int
    ended: int | None
    created: int
    waits: int | None
    unsettled: bool
    refusals: int
    spent_us: int
    unsent_us: int
    response: bytes | None
    key_forced: bool
    resolution: Resolution | None


class SagaKey(NamedTuple):
    """What matters of a saga; the same key, the same future."""

    state: SagaState
    point_of_no_return_passed: bool
    abort_requested: bool
    unproven: bool
    is_late: bool
    owed: int
    due: int | None
    failed: int | None
    letters: tuple[LetterKey, ...]
    intents: tuple[IntentKey, ...]


def key_of(saga: Saga, now: int) -> SagaKey:
    """What matters of a saga at a moment."""
    running = saga.state is SagaState.RUNNING
    failed = None
    if saga.failure is not None:
        in_grace = saga.state is SagaState.COMPENSATING and any(
            intent.in_flight and intent.direction is not Direction.COMPENSATION for intent in saga.intents
        )
        failed = max(saga.failure.time - now, -GRACE_US) if in_grace else 0
    intents = [_intent_key(saga.plan, intent, now) for intent in saga.intents]
    letters = [
        LetterKey(letter.step, letter.direction, letter.reason, letter.closed_time is None)
        for letter in saga.dead_letters
        if letter.closed_time is None or letter.reason is DeadLetterReason.TIMED_OUT
    ]
    due_time = saga.due_time
    return SagaKey(
        saga.state,
        saga.point_of_no_return_passed,
        running and saga.abort_requested,
        saga.unproven,
        running and now >= saga.deadline_time,
        saga.compensations_owed,
        None if due_time is None else FAR_US if due_time == saga.deadline_time else max(0, due_time - now),
        failed,
        tuple(sorted(letters, key=str)),
        tuple(sorted(intents, key=_row_order)),
    )


def saga_from(key: SagaKey, plan: Plan) -> Saga:
    """A saga with a key, at the moment 0."""
    zero = Instant(0)
    failure = None
    if key.failed is not None:
        failure = Failure(step=None, reason="", status_code="", message="", time=Instant(key.failed))
    return Saga(
        id=SagaId("s"),
        plan=plan,
        state=key.state,
        failure=failure,
        point_of_no_return_passed=key.point_of_no_return_passed,
        abort_requested=key.abort_requested,
        unproven=key.unproven,
        intents=tuple(_intent_from(intent, plan.by_name[intent.step]) for intent in key.intents),
        dead_letters=tuple(_letter_from(number, letter) for number, letter in enumerate(key.letters, start=1)),
        compensations_owed=key.owed,
        due_time=None if key.due is None else Instant(key.due),
        created_time=zero,
        updated_time=Instant(-1),
        progress_time=Instant(-1),
        ended_time=zero if key.state.ended else None,
        deadline_time=Instant(0 if key.is_late else FAR_US),
    )


def _row_order(intent: IntentKey) -> tuple[Hashable, ...]:
    return (intent.step, intent.direction)


def _intent_key(plan: Plan, intent: Intent, now: int) -> IntentKey:
    step = plan.by_name[intent.step]
    call = step.call(intent.direction)
    is_open, pending = intent.state in OPEN_STATES, intent.state is IntentState.PENDING
    window_us, total_us = call.idempotency_window_us, call.retry.total_timeout_us
    started = 0
    if intent.in_flight or (is_open and step.settle_delay_us is not None):
        started = max(intent.attempt_start_time - now, -_oldest(step, intent.direction))
    last = intent.attempts[-1] if intent.attempts and not intent.in_flight else None
    ended = None if last is None or last.end_time is None else 0
    if last is not None and last.end_time is not None and started:
        ended = max(last.end_time - now, -_oldest(step, intent.direction))
    created = max(intent.created_time - now, -window_us - _oldest(step, Direction.ACTION)) if window_us else 0
    is_action = intent.direction is Direction.ACTION
    doubles = step.guarantee is Guarantee.NONE or window_us
    matters = intent.direction is not Direction.LOOKUP and (is_action or (doubles and is_open))
    waits = None if intent.next_attempt_time is None else max(0, intent.next_attempt_time - now)
    return IntentKey(
        intent.step,
        intent.direction,
        intent.state,
        min(MOST_ATTEMPTS if is_open else 1, intent.attempt),
        started,
        ended,
        created,
        waits,
        intent.unsettled and bool(matters),
        min(intent.refusals, call.retry.maximum_refusals) if is_open else 0,
        min(intent.spent_us, total_us) if is_open else 0,
        min(intent.unsent_us, total_us) if pending else 0,
        intent.response if is_action else None,
        intent.key_forced and bool(window_us),
        intent.resolution,
    )


def _oldest(step: StepPlan, direction: Direction) -> int:
    """How long ago the beginning of an attempt still makes a difference. An action's is compared with a lookup's."""
    call = step.call(direction)
    longest = max(call.retry.total_timeout_us, call.timeout_us + TICK_US)
    return longest if direction is not Direction.ACTION else 2 * longest + (step.settle_delay_us or 0)


def _intent_from(key: IntentKey, step: StepPlan) -> Intent:
    started = Instant(key.started)
    ended = None if key.ended is None else Instant(key.ended)
    attempt = Attempt(number=key.attempt, node=NODE, start_time=started, end_time=ended)
    return Intent(
        step=key.step,
        direction=key.direction,
        method="",
        participant=step.call(key.direction).method.partition("/")[0],
        state=key.state,
        attempt=key.attempt,
        attempts=(attempt,) if key.attempt else (),
        next_attempt_time=None if key.waits is None else Instant(key.waits),
        unsettled=key.unsettled,
        refusals=key.refusals,
        spent_us=key.spent_us,
        unsent_us=key.unsent_us,
        response=key.response,
        key_forced=key.key_forced,
        resolution=key.resolution,
        created_time=Instant(key.created),
        updated_time=Instant(-1),
    )


def _letter_from(number: int, key: LetterKey) -> DeadLetter:
    return DeadLetter(
        id=DeadLetterId(f"s/{key.step or '-'}/{(key.direction or '-').lower()}/{number}"),
        step=key.step,
        direction=key.direction,
        reason=key.reason,
        last_error="",
        opened_time=Instant(0),
        closed_time=None if key.is_open else Instant(0),
    )
