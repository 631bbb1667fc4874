"""The one entrance of the core: `decide(saga, event)` says what an event means.

Pure: the same saga and event give the same decision, always. The engine writes the decision's records, waits until they
are durable, carries out its effects, and feeds what happened back in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amends_coordinator.core import guards
from amends_coordinator.core.answer import Answer, heard
from amends_coordinator.core.backward import go_backward, grace_end, roll_back
from amends_coordinator.core.draft import Draft
from amends_coordinator.core.effects import IgnoreLateAnswer, WakeAt
from amends_coordinator.core.events import Adopted, AttemptEnded, BindingFailed, DriverFailed, Event, Started, Woken
from amends_coordinator.core.forward import go_forward, go_on_compensated, waits_for_calls
from amends_coordinator.core.ids import Instant
from amends_coordinator.core.saga import Failure
from amends_coordinator.core.settle import (
    give_up_action,
    give_up_lookup,
    settle_action,
    settle_compensation,
    settle_lookup,
)
from amends_coordinator.core.states import ACTION, RUNNING, DeadLetterReason, Direction, Outcome, SagaState
from amends_coordinator.core.transitions import IllegalTransitionError, IntentMove
from amends_coordinator.core.values import maker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amends_coordinator.core.decision import Decision
    from amends_coordinator.core.ids import StepName
    from amends_coordinator.core.saga import Intent, Saga

_wake_at = maker(WakeAt)

OVERDUE_US = 5_000_000
"""A saga whose call is in flight is looked at again this long after the call's deadline, should its driver be gone."""

TIMED_OUT = "TIMED_OUT"
LATE = "the saga did not end within its timeout"
ABORTED = "ABORTED"
FORGOTTEN = "the participant may have forgotten the key by now, so the call can't be repeated"


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
        case AttemptEnded():
            intent = draft.intent(event.step, event.direction)
            if intent is None or not guards.is_open(intent, event):
                draft.effect(IgnoreLateAnswer(event.step, event.direction, event.attempt))
                return draft.finished(saga.due_time)
            _end_attempt(draft, intent, event.answer)
        case Started():
            _require_new(saga)
        case BindingFailed():
            _fail_binding(draft, event)
        case Adopted():
            _apply_abort(draft)
            _apply_timeout(draft)
            _report_timeout(draft)
            _settle_orphans(draft, saga)
        case Woken():
            _report_timeout(draft)
        case DriverFailed():
            _report_failure(draft, event)
            return draft.finished(saga.due_time)
    _advance(draft)
    return _with_wake_up(draft)


def _require_new(saga: Saga) -> None:
    if saga.intents or saga.state is not RUNNING:
        raise IllegalTransitionError(f"saga {saga.id} was started already")


def _end_attempt(draft: Draft, intent: Intent, answer: Answer) -> None:
    step = draft.plan.by_name[intent.step]
    failure: Failure | None = None
    if intent.direction is ACTION:
        if answer.outcome is not Outcome.SUCCEEDED:
            answer = heard(step.action, answer)
        failure = settle_action(draft, step, draft.close_attempt(intent, answer), answer)
    elif intent.direction is Direction.LOOKUP:
        failure = settle_lookup(draft, step, draft.close_attempt(intent, answer), answer)
    else:
        settle_compensation(draft, step, draft.close_attempt(intent, answer), answer)
    if failure is not None:
        _roll_back_for(draft, failure)


def _roll_back_for(draft: Draft, failure: Failure | None) -> None:
    if failure is not None and draft.saga.state is RUNNING:
        roll_back(draft, failure)


def _fail_binding(draft: Draft, event: BindingFailed) -> None:
    """A request that can't be built was never sent: the action did not happen; anything else needs a person."""
    intent = draft.intent(event.step, event.direction)
    if intent is None or not intent.in_flight or intent.attempt != 1:
        # A later attempt sends the bytes of the first one, so what it is about may have happened already.
        raise IllegalTransitionError(f"{event.step}/{event.direction} doesn't begin now: its binding can't fail")
    message = f"the request can't be built: {event.message}"
    unsent = draft.put(intent, attempt=0, attempts=(), last_error=message)
    failure: Failure | None = None
    if event.direction is ACTION and event.step not in draft.plan.forward_only:
        draft.move(unsent, IntentMove.REFUSED_FOR_GOOD)
        failure = Failure(step=event.step, reason="BINDING_FAILED", status_code="", message=message, time=draft.at.now)
    elif event.direction is Direction.LOOKUP:
        failure = give_up_lookup(draft, draft.plan.by_name[event.step], unsent)
    else:
        draft.park(unsent, DeadLetterReason.REFUSED)
    if failure is not None and draft.saga.state is RUNNING:
        _take_back(draft, event.beside)
        roll_back(draft, failure)


def _take_back(draft: Draft, keys: Iterable[tuple[StepName, Direction]]) -> None:
    """Calls that were about to be made when their saga began to roll back: they wait again, as if not announced."""
    for key in keys:
        intent = draft.intent(*key)
        if intent is not None and intent.in_flight:
            draft.put(intent, attempt=intent.attempt - 1, attempts=intent.attempts[:-1], next_attempt_time=draft.at.now)


def _apply_abort(draft: Draft) -> None:
    """An abort that the ledger has accepted rolls the saga back; its reason stands in the row already."""
    if draft.saga.abort_requested and guards.abort_applies(draft.saga):
        roll_back(draft, Failure(step=None, reason=ABORTED, status_code="", message="", time=draft.at.now))


def _apply_timeout(draft: Draft) -> None:
    """Before the point of no return the saga's timeout is an abort by the coordinator."""
    if _is_late(draft) and guards.abort_applies(draft.saga):
        failure = Failure(step=None, reason=TIMED_OUT, status_code="", message=LATE, time=draft.at.now)
        roll_back(draft, failure)


def _report_timeout(draft: Draft) -> None:
    """Behind the point of no return a saga that is late goes on, but a person is told, once."""
    if _is_late(draft) and draft.saga.point_of_no_return_passed and not _timeout_reported(draft):
        draft.open_dead_letter(None, None, DeadLetterReason.TIMED_OUT, LATE)


def _is_late(draft: Draft) -> bool:
    return draft.saga.state is RUNNING and draft.at.now >= draft.saga.deadline_time


def _timeout_reported(draft: Draft) -> bool:
    letters = draft.dead_letters
    return bool(letters) and any(letter.reason is DeadLetterReason.TIMED_OUT for letter in letters)


def _report_failure(draft: Draft, event: DriverFailed) -> None:
    """Tell a person, once, that the coordinator itself can't get on with the saga."""
    told = DeadLetterReason.DRIVER_FAILED
    if not any(letter.reason is told and guards.letter_is_open(letter) for letter in draft.dead_letters):
        draft.open_dead_letter(None, None, told, event.message)


def _give_up_forgotten(draft: Draft) -> None:
    """What waited until the participant may have forgotten its key is not repeated any more."""
    for found in draft.pending:
        if found.next_attempt_time is None or found.direction is Direction.LOOKUP:
            continue  # nothing of it waits
        intent = draft.intent(found.step, found.direction)
        if intent is None or not intent.waiting:
            continue  # what was given up before it has begun to roll the saga back, and settled it
        step = draft.plan.by_name[intent.step]
        if not guards.key_expired(step.call(intent.direction), intent, draft.at.now):
            continue
        told = draft.put(intent, last_error=f"{intent.last_error} ({FORGOTTEN})")
        if intent.direction is Direction.COMPENSATION:
            draft.park(told, DeadLetterReason.BUDGET_SPENT)
        else:
            _roll_back_for(draft, give_up_action(draft, step, told, Answer(outcome=Outcome.UNKNOWN)))


def _settle_orphans(draft: Draft, found: Saga) -> None:
    """What an earlier incarnation had in flight ended unknown; it is repeated at once, whatever the budget says, unless
    it was to run at most once.

    Only what was found in flight is an orphan: a lookup that the timeout has just announced is this decision's own.
    """
    for orphan in (intent for intent in found.intents if guards.may_have_been_sent(intent)):
        intent = draft.intent(*orphan.key)
        if intent is None or not intent.in_flight:
            continue
        answer = Answer(outcome=Outcome.UNKNOWN, message="the coordinator stopped before an answer was recorded")
        closed = draft.put(draft.close_attempt(intent, answer), unsettled=True)
        step = draft.plan.by_name[intent.step]
        repeated = closed.direction is not ACTION or guards.may_repeat_action(
            draft.saga.state, step, closed, draft.at.now
        )
        if repeated:
            draft.put(closed, next_attempt_time=draft.at.now)
        else:
            _roll_back_for(draft, give_up_action(draft, step, closed, answer))


def _advance(draft: Draft) -> None:
    if draft.saga.abort_requested:
        _apply_abort(draft)
    if draft.at.now >= draft.saga.deadline_time:
        _apply_timeout(draft)
    if draft.plan.keys_are_forgotten:
        _give_up_forgotten(draft)
    state = draft.saga.state
    if state is RUNNING:
        go_forward(draft)
        return
    if state is SagaState.COMPENSATING:
        go_backward(draft)
    if draft.saga.state is SagaState.COMPENSATED:
        go_on_compensated(draft)


def _with_wake_up(draft: Draft) -> Decision:
    due_time = _due_time(draft)
    if due_time is not None:
        draft.effect(_wake_at(due_time))
    return draft.finished(due_time)


def _due_time(draft: Draft) -> Instant | None:
    """When the saga has to be looked at next, by itself."""
    saga = draft.saga
    state = saga.state
    times: list[Instant] = []
    if state is not RUNNING:
        if state is SagaState.COMMITTED or state is SagaState.COMPENSATION_FAILED:
            return None
    elif not _timeout_reported(draft):
        times.append(saga.deadline_time)
    for intent in draft.pending:
        if intent.next_attempt_time is None:
            times.append(_overdue_time(draft, intent))
            grace_time = grace_end(draft, intent) if state is not RUNNING else None
            if grace_time is not None:
                times.append(grace_time)
        elif not waits_for_calls(draft, intent):
            times.append(intent.next_attempt_time)
    return min(times, default=None)


def _overdue_time(draft: Draft, intent: Intent) -> Instant:
    """When a call in flight should have ended for some time. One that is overdue already is looked at again later, not
    at once and for ever.
    """
    timeout_us = draft.plan.by_name[intent.step].call(intent.direction).timeout_us
    return Instant(max(draft.at.now, intent.attempt_start_time + timeout_us) + OVERDUE_US)
