"""Backward recovery: begins it, runs the compensations newest first, and says when everything is undone.

Order: a step is undone after all steps that depend on it. `CONTINUE` lets older compensations go on past one that is
parked or stalled; `HALT` does not. No compensation starts while a call of an action or lookup is in flight (S5).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from amends_coordinator.core.budget import stalled
from amends_coordinator.core.effects import CancelCall, Finish
from amends_coordinator.core.forward import deadline_of, new_intent, repeat_due_attempts
from amends_coordinator.core.settle import settle_unknown
from amends_coordinator.core.states import Direction, FailurePolicy, Guarantee, IntentState, SagaState, StepKind
from amends_coordinator.core.transitions import IntentMove, SagaMove

if TYPE_CHECKING:
    from amends_coordinator.core.draft import Draft
    from amends_coordinator.core.ids import StepName
    from amends_coordinator.core.plan import StepPlan
    from amends_coordinator.core.saga import Failure, Intent

HAPPENED_OR_MAY_HAVE = frozenset({IntentState.SUCCEEDED, IntentState.UNKNOWN})
SETTLED = frozenset({IntentState.SUCCEEDED, IntentState.NOTHING_TO_UNDO, IntentState.RESOLVED})


class Undoing(Enum):
    """How far the undoing of one step is."""

    DONE = "nothing is owed"
    OWED = "its compensation can be announced once those of its dependents are out of the way"
    UNDER_WAY = "a call is in flight or waits for its time"
    PASSED_OVER = "parked or stalled: still owed, but it holds back nothing else unless the policy is HALT"


def roll_back(draft: Draft, failure: Failure) -> None:
    """Begin backward recovery: nothing is announced or retried any more; what waits is settled or dropped."""
    draft.change(failure=draft.saga.failure or failure, point_of_no_return_passed=False)
    draft.move_saga(SagaMove.ROLL_BACK)
    for intent in draft.intents:
        if intent.direction is Direction.ACTION and intent.state is IntentState.PENDING:
            _stop_action(draft, intent)


def go_backward(draft: Draft) -> None:
    """Announce what can be undone now, and end the saga if nothing is owed or nothing can go on without a person."""
    repeat_due_attempts(draft)
    undoing = {step.name: undoing_of(draft, step) for step in draft.plan.steps}
    if not _forward_call_in_flight(draft):
        _announce_compensations(draft, undoing)
    owed = sum(state is not Undoing.DONE for state in undoing.values())
    draft.change(compensations_owed=owed)
    if owed == 0:
        draft.change(unproven=draft.saga.unproven or _rests_on_assumption(draft))
        draft.move_saga(SagaMove.EVERYTHING_UNDONE)
        draft.effect(Finish(SagaState.COMPENSATED))
    elif not any(intent.state is IntentState.PENDING for intent in draft.intents):
        draft.move_saga(SagaMove.NOTHING_CAN_GO_ON)
        draft.effect(Finish(SagaState.COMPENSATION_FAILED))


def undoing_of(draft: Draft, step: StepPlan) -> Undoing:
    """How far the undoing of a step is, from what its rows say."""
    action = draft.intent(step.name, Direction.ACTION)
    if action is None or step.kind is StepKind.READ_ONLY:
        return Undoing.DONE
    if action.state is IntentState.PARKED:
        return Undoing.PASSED_OVER
    lookup = draft.intent(step.name, Direction.LOOKUP)
    for call in (action, lookup):
        if call is not None and call.state is IntentState.PENDING:
            return _under_way(step, call)
    if action.state not in HAPPENED_OR_MAY_HAVE:
        return Undoing.DONE
    compensation = draft.intent(step.name, Direction.COMPENSATION)
    if compensation is None:
        return Undoing.OWED
    if compensation.state is IntentState.PENDING:
        return _under_way(step, compensation)
    return Undoing.DONE if compensation.state in SETTLED else Undoing.PASSED_OVER


def _under_way(step: StepPlan, call: Intent) -> Undoing:
    is_stalled = call.direction is not Direction.ACTION and stalled(call, step.call(call.direction).retry)
    return Undoing.PASSED_OVER if is_stalled else Undoing.UNDER_WAY


def _stop_action(draft: Draft, intent: Intent) -> None:
    """What becomes of an action that isn't over when the saga starts to roll back."""
    step = draft.plan.by_name[intent.step]
    if step.kind is StepKind.READ_ONLY:
        if intent.in_flight:
            draft.effect(CancelCall(intent.step, intent.direction))
        draft.move(intent, IntentMove.NOT_WANTED)
    elif intent.waiting and not intent.unsettled:
        draft.move(intent, IntentMove.NOT_WANTED)
    elif intent.waiting:
        settle_unknown(draft, step, intent)


def _forward_call_in_flight(draft: Draft) -> bool:
    return any(i.in_flight and i.direction is not Direction.COMPENSATION for i in draft.intents)


def _announce_compensations(draft: Draft, undoing: dict[StepName, Undoing]) -> None:
    """Walk the steps from the last to the first; a step whose undoing isn't out of the way holds back what it depends
    on.
    """
    held_back: set[StepName] = set()
    halt = draft.plan.failure_policy is FailurePolicy.HALT
    for step in reversed(draft.plan.steps):
        state = undoing[step.name]
        held = any(name in held_back for name in draft.plan.dependents[step.name])
        if state is Undoing.OWED and not held:
            compensation = new_intent(draft, step, Direction.COMPENSATION)
            draft.announce(compensation, deadline_of(draft, step, Direction.COMPENSATION))
        passes = state is Undoing.DONE or (state is Undoing.PASSED_OVER and not halt)
        if held or not passes:
            held_back.add(step.name)


def _rests_on_assumption(draft: Draft) -> bool:
    """Whether a step that has an effect was settled neither by OK nor by a seal, where no barrier keeps late actions
    out.
    """
    return any(
        intent.direction is Direction.ACTION
        and intent.unsettled
        and draft.plan.by_name[intent.step].kind is not StepKind.READ_ONLY
        and draft.plan.by_name[intent.step].guarantee is not Guarantee.BARRIER
        for intent in draft.intents
    )
