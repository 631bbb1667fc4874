"""The one entrance of the core: `decide(saga, event)` says what an event means.

Pure: the same saga and event give the same decision, always. The engine writes the decision's records, waits until they
are durable, carries out its effects, and feeds what happened back in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amends_coordinator.core.answer import Answer
from amends_coordinator.core.backward import go_backward, roll_back
from amends_coordinator.core.draft import Draft
from amends_coordinator.core.effects import IgnoreLateAnswer, WakeAt
from amends_coordinator.core.events import Adopted, AttemptEnded, BindingFailed, Event, Started, Woken
from amends_coordinator.core.forward import go_forward
from amends_coordinator.core.ids import Instant
from amends_coordinator.core.saga import Failure
from amends_coordinator.core.settle import settle_action, settle_compensation, settle_lookup
from amends_coordinator.core.states import DeadLetterReason, Direction, IntentState, Outcome, SagaState
from amends_coordinator.core.transitions import IllegalTransitionError, IntentMove

if TYPE_CHECKING:
    from amends_coordinator.core.decision import Decision
    from amends_coordinator.core.saga import Intent, Saga

OVERDUE_US = 5_000_000
"""A saga whose call is in flight is looked at again this long after the call's deadline, should its driver be gone."""

TIMED_OUT = "TIMED_OUT"
LATE = "the saga did not end within its timeout"


def decide(saga: Saga, event: Event) -> Decision:
    """What an event means for a saga.

    Args:
        saga: the saga as it was made durable last.
        event: what happened, with the moment at which it is decided.

    Raises:
        IllegalTransitionError: the event can't happen in this state; a fault of the caller or of amends.
    """
    draft = Draft(saga, event.at)
    match event:
        case Started():
            _require_new(saga)
        case AttemptEnded():
            if not _is_open(saga, event):
                draft.effect(IgnoreLateAnswer(event.step, event.direction, event.attempt))
                return draft.finished(saga.due_time)
            _end_attempt(draft, event)
        case BindingFailed():
            _fail_binding(draft, event)
        case Adopted():
            _apply_timeout(draft)
            _report_timeout(draft)
            _settle_orphans(draft, saga)
        case Woken():
            _report_timeout(draft)
    _advance(draft)
    return _with_wake_up(draft)


def _require_new(saga: Saga) -> None:
    if saga.intents or saga.state is not SagaState.RUNNING:
        raise IllegalTransitionError(f"saga {saga.id} was started already")


def _is_open(saga: Saga, event: AttemptEnded) -> bool:
    """An answer to attempt n never decides attempt n + 1."""
    intent = saga.intent(event.step, event.direction)
    return intent is not None and intent.in_flight and intent.attempt == event.attempt


def _end_attempt(draft: Draft, event: AttemptEnded) -> None:
    intent = draft.intent(event.step, event.direction)
    if intent is not None:
        _settle(draft, draft.close_attempt(intent, event.answer), event.answer)


def _settle(draft: Draft, intent: Intent, answer: Answer) -> None:
    step = draft.plan.by_name[intent.step]
    failure: Failure | None = None
    match intent.direction:
        case Direction.ACTION:
            failure = settle_action(draft, step, intent, answer)
        case Direction.LOOKUP:
            failure = settle_lookup(draft, step, intent, answer)
        case Direction.COMPENSATION:
            settle_compensation(draft, step, intent, answer)
    if failure is not None and draft.saga.state is SagaState.RUNNING:
        roll_back(draft, failure)


def _fail_binding(draft: Draft, event: BindingFailed) -> None:
    """A request that can't be built was never sent: the action did not happen; anything else needs a person."""
    intent = draft.intent(event.step, event.direction)
    if intent is None or not intent.in_flight or intent.attempt != 1:
        # A later attempt sends the bytes of the first one, so what it is about may have happened already.
        raise IllegalTransitionError(f"{event.step}/{event.direction} doesn't begin now: its binding can't fail")
    message = f"the request can't be built: {event.message}"
    unsent = draft.put(intent, attempt=0, attempts=(), last_error=message)
    if event.direction is Direction.ACTION and event.step not in draft.plan.forward_only:
        draft.move(unsent, IntentMove.REFUSED_FOR_GOOD)
        failure = Failure(step=event.step, reason="BINDING_FAILED", status_code="", message=message, time=draft.at.now)
        roll_back(draft, failure)
    elif event.direction is Direction.LOOKUP:
        _settle(draft, unsent, Answer(outcome=Outcome.REJECTED, status_code="NOT_FOUND", message=message))
    else:
        draft.park(unsent, DeadLetterReason.REFUSED)


def _apply_timeout(draft: Draft) -> None:
    """Before the point of no return the saga's timeout is an abort by the coordinator."""
    if _is_late(draft) and not draft.saga.point_of_no_return_passed:
        failure = Failure(step=None, reason=TIMED_OUT, status_code="", message=LATE, time=draft.at.now)
        roll_back(draft, failure)


def _report_timeout(draft: Draft) -> None:
    """Behind the point of no return a saga that is late goes on, but a person is told, once."""
    if _is_late(draft) and draft.saga.point_of_no_return_passed and not _timeout_reported(draft):
        draft.open_dead_letter(None, None, DeadLetterReason.TIMED_OUT, LATE)


def _is_late(draft: Draft) -> bool:
    return draft.saga.state is SagaState.RUNNING and draft.at.now >= draft.saga.deadline_time


def _timeout_reported(draft: Draft) -> bool:
    return any(letter.reason is DeadLetterReason.TIMED_OUT for letter in draft.dead_letters)


def _settle_orphans(draft: Draft, found: Saga) -> None:
    """What an earlier incarnation had in flight ended unknown; it is repeated at once, whatever the budget says.

    Only what was found in flight is an orphan: a lookup that the timeout has just announced is this decision's own.
    """
    for orphan in (intent for intent in found.intents if intent.in_flight):
        intent = draft.intent(*orphan.key)
        if intent is None or not intent.in_flight:
            continue
        answer = Answer(outcome=Outcome.UNKNOWN, message="the coordinator stopped before an answer was recorded")
        closed = draft.put(draft.close_attempt(intent, answer), unsettled=True)
        if closed.direction is Direction.ACTION and draft.saga.state is not SagaState.RUNNING:
            _settle(draft, closed, answer)
        else:
            draft.put(closed, next_attempt_time=draft.at.now)


def _advance(draft: Draft) -> None:
    _apply_timeout(draft)
    if draft.saga.state is SagaState.RUNNING:
        go_forward(draft)
    elif draft.saga.state is SagaState.COMPENSATING:
        go_backward(draft)


def _with_wake_up(draft: Draft) -> Decision:
    due_time = _due_time(draft)
    if due_time is not None:
        draft.effect(WakeAt(due_time))
    return draft.finished(due_time)


def _due_time(draft: Draft) -> Instant | None:
    """When the saga has to be looked at next, by itself."""
    saga = draft.saga
    if saga.state.ended or saga.state is SagaState.COMPENSATION_FAILED:
        return None
    times = [
        _overdue_time(draft, intent) if intent.next_attempt_time is None else intent.next_attempt_time
        for intent in draft.intents
        if intent.state is IntentState.PENDING
    ]
    if saga.state is SagaState.RUNNING and not _timeout_reported(draft):
        times.append(saga.deadline_time)
    return min(times, default=None)


def _overdue_time(draft: Draft, intent: Intent) -> Instant:
    """When a call in flight should have ended for some time. One that is overdue already is looked at again later, not
    at once and for ever.
    """
    timeout_us = draft.plan.by_name[intent.step].call(intent.direction).timeout_us
    return Instant(max(draft.at.now, intent.attempt_start_time + timeout_us) + OVERDUE_US)
