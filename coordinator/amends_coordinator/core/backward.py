"""Backward recovery: begins it, runs the compensations newest first, and says when everything is undone.

Order: a step is undone after all steps that depend on it; steps that ran side by side are undone side by side.
`CONTINUE` lets older compensations go on past one that is parked or stalled; `HALT` does not. No compensation starts
while a call of an action or lookup is in flight (S5).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from amends_coordinator.core import guards
from amends_coordinator.core.answer import Answer
from amends_coordinator.core.budget import stalled
from amends_coordinator.core.effects import CancelCall, Finish
from amends_coordinator.core.forward import deadline_of, repeat_due_attempts
from amends_coordinator.core.ids import Instant
from amends_coordinator.core.settle import new_intent, settle_action, settle_lookup, settle_unknown
from amends_coordinator.core.states import Direction, IntentState, Outcome, SagaState, StepKind
from amends_coordinator.core.transitions import IntentMove, SagaMove

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amends_coordinator.core.draft import Draft
    from amends_coordinator.core.ids import StepName
    from amends_coordinator.core.plan import StepPlan
    from amends_coordinator.core.saga import Failure, Intent

SETTLED = frozenset({IntentState.SUCCEEDED, IntentState.NOTHING_TO_UNDO, IntentState.RESOLVED})
CANCELLED = "it was cancelled because the saga rolls back"


class Undoing(Enum):
    """How far the undoing of one step is."""

    DONE = "nothing is owed"
    OWED = "its compensation can be announced once those of its dependents are out of the way"
    UNDER_WAY = "a call is in flight or waits for its time"
    STALLED = "its call could not be sent for as long as its budget: still owed and tried"
    PARKED = "a person has to decide: still owed"


def roll_back(draft: Draft, failure: Failure) -> None:
    """Begin backward recovery: nothing is announced or retried any more; what waits is settled or dropped."""
    draft.change(failure=draft.saga.failure or failure, point_of_no_return_passed=False)
    draft.move_saga(SagaMove.ROLL_BACK)
    for intent in draft.intents:
        if intent.state is IntentState.PENDING:
            _stop(draft, intent)
        elif intent.state is IntentState.PARKED and intent.attempt == 0:
            draft.move(intent, IntentMove.NOT_WANTED)


def go_backward(draft: Draft) -> None:
    """Announce what can be undone now, and end the saga if nothing is owed or nothing can go on without a person."""
    _cancel_after_grace(draft)
    repeat_due_attempts(draft)
    undoing = undoing_of_all(draft)
    if guards.calls_have_landed(draft.intents):
        _announce_compensations(draft, undoing)
    owed = sum(state is not Undoing.DONE for state in undoing.values())
    draft.change(compensations_owed=owed)
    if owed == 0:
        draft.change(unproven=draft.saga.unproven or _rests_on_assumption(draft))
        draft.move_saga(SagaMove.EVERYTHING_UNDONE)
        draft.effect(Finish(SagaState.COMPENSATED))
    elif not draft.pending:
        draft.move_saga(SagaMove.NOTHING_CAN_GO_ON)
        draft.effect(Finish(SagaState.COMPENSATION_FAILED))


def undoing_of_all(draft: Draft) -> dict[StepName, Undoing]:
    """How far the undoing of each step is, from what its rows say."""
    return {step.name: _undoing_of(draft, step) for step in draft.plan.steps}


def grace_end(draft: Draft, intent: Intent) -> Instant | None:
    """Until when a call may go on that was in flight when its saga began to roll back; None: it isn't one."""
    failure = draft.saga.failure
    if failure is None or draft.saga.state is not SagaState.COMPENSATING or not intent.in_flight:
        return None
    if intent.direction is Direction.COMPENSATION:
        return None
    if intent.direction is Direction.LOOKUP and intent.attempt_start_time >= failure.time:
        return None
    # No action begins once the saga rolls back; one that seems to began after the abort was asked for, and before it
    # was written down.
    return Instant(max(failure.time, intent.attempt_start_time) + draft.at.abort_grace_us)


def _undoing_of(draft: Draft, step: StepPlan) -> Undoing:
    action = draft.intent(step.name, Direction.ACTION)
    if action is None or step.kind is StepKind.READ_ONLY:
        return Undoing.DONE
    if action.state is IntentState.PARKED:
        return Undoing.PARKED
    lookup = draft.intent(step.name, Direction.LOOKUP)
    for call in (action, lookup):
        if call is not None and call.state is IntentState.PENDING:
            return _under_way(draft, step, call)
    if not guards.owes_undoing(action) or step.compensation is None:
        return Undoing.DONE
    compensation = draft.intent(step.name, Direction.COMPENSATION)
    if compensation is None:
        return Undoing.OWED
    if compensation.state is IntentState.PENDING:
        return _under_way(draft, step, compensation)
    return Undoing.DONE if compensation.state in SETTLED else Undoing.PARKED


def _under_way(draft: Draft, step: StepPlan, call: Intent) -> Undoing:
    if call.direction is Direction.ACTION or not guards.stalled_is_passed_over(draft.plan.failure_policy):
        return Undoing.UNDER_WAY
    return Undoing.STALLED if stalled(call, step.call(call.direction).retry) else Undoing.UNDER_WAY


def _stop(draft: Draft, intent: Intent) -> None:
    """What becomes of a call that isn't over when the saga starts to roll back."""
    step = draft.plan.by_name[intent.step]
    if step.kind is StepKind.READ_ONLY:
        if intent.in_flight:
            draft.effect(CancelCall(intent.step, intent.direction))
        draft.move(intent, IntentMove.NOT_WANTED)
    elif intent.direction is Direction.ACTION and intent.waiting:
        if intent.unsettled:
            settle_unknown(draft, step, intent)
        else:
            draft.move(intent, IntentMove.NOT_WANTED)


def _cancel_after_grace(draft: Draft) -> None:
    """Stop waiting for calls that were in flight when the saga began to roll back and still are: that is unknown."""
    for intent in draft.intents:
        end_time = grace_end(draft, intent)
        if end_time is None or end_time > draft.at.now:
            continue
        step = draft.plan.by_name[intent.step]
        answer = Answer(outcome=Outcome.UNKNOWN, message=CANCELLED)
        draft.effect(CancelCall(intent.step, intent.direction))
        closed = draft.close_attempt(intent, answer)
        settle = settle_action if intent.direction is Direction.ACTION else settle_lookup
        settle(draft, step, closed, answer)


def _announce_compensations(draft: Draft, undoing: dict[StepName, Undoing]) -> None:
    """Walk the steps from the last to the first; a step whose undoing isn't out of the way holds back what it depends
    on.
    """
    held_back: set[StepName] = set()
    halted = guards.parked_holds_back(draft.plan.failure_policy) and Undoing.PARKED in undoing.values()
    for step in reversed(draft.plan.steps):
        state = undoing[step.name]
        held = any(name in held_back for name in draft.plan.dependents[step.name])
        if state is Undoing.OWED and not held and not (halted and not _has_begun(draft, step)):
            draft.announce(
                new_intent(draft, step, Direction.COMPENSATION), deadline_of(draft, step, Direction.COMPENSATION)
            )
        if held or not _is_out_of_the_way(draft, state):
            held_back.add(step.name)


def _is_out_of_the_way(draft: Draft, state: Undoing) -> bool:
    if state is Undoing.PARKED:
        return not guards.parked_holds_back(draft.plan.failure_policy)
    return state in (Undoing.DONE, Undoing.STALLED)


def _has_begun(draft: Draft, step: StepPlan) -> bool:
    """Whether the undoing of a step's branch has begun: that of a step that depends on it was announced."""
    return _any_announced(draft, draft.plan.descendants[step.name])


def _any_announced(draft: Draft, steps: Iterable[StepName]) -> bool:
    return any(draft.intent(name, Direction.COMPENSATION) is not None for name in steps)


def _rests_on_assumption(draft: Draft) -> bool:
    """Whether a step that has an effect was settled neither by OK nor by a seal, where no barrier keeps late actions
    out.
    """
    return any(
        intent.direction is Direction.ACTION and guards.rests_on_assumption(draft.plan.by_name[intent.step], intent)
        for intent in draft.intents
    )
