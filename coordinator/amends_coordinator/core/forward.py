"""Forward: announces the next steps of a running saga, and commits it when every step is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amends_coordinator.core.effects import Finish
from amends_coordinator.core.ids import Instant
from amends_coordinator.core.saga import Intent
from amends_coordinator.core.states import Direction, Guarantee, IntentState, SagaState, StepKind
from amends_coordinator.core.transitions import SagaMove

if TYPE_CHECKING:
    from amends_coordinator.core.draft import Draft
    from amends_coordinator.core.ids import StepName
    from amends_coordinator.core.plan import StepPlan

DONE = frozenset({IntentState.SUCCEEDED, IntentState.RESOLVED})


def go_forward(draft: Draft) -> None:
    """Announce every step whose predecessors are done; commit if there is nothing left to do."""
    repeat_due_attempts(draft)
    done: set[StepName] = set()
    unannounced: list[StepPlan] = []
    for step in draft.plan.steps:
        action = draft.intent(step.name, Direction.ACTION)
        if action is None:
            unannounced.append(step)
        elif action.state in DONE:
            done.add(step.name)
    if len(done) == len(draft.plan.steps):
        draft.change(point_of_no_return_passed=True)
        draft.move_saga(SagaMove.EVERY_STEP_DONE)
        draft.effect(Finish(SagaState.COMMITTED))
        return
    for step in unannounced:
        if done.issuperset(step.after):
            _begin(draft, step)


def repeat_due_attempts(draft: Draft) -> None:
    """Announce the next attempt of every call whose time has come."""
    for intent in draft.intents:
        if intent.next_attempt_time is None or intent.next_attempt_time > draft.at.now:
            continue
        step = draft.plan.by_name[intent.step]
        if intent.unsettled and step.guarantee is Guarantee.NONE:
            # Without any guarantee the repetition itself may have doubled the effect, whatever it will answer.
            draft.change(unproven=True)
        draft.announce(intent, deadline_of(draft, step, intent.direction))


def deadline_of(draft: Draft, step: StepPlan, direction: Direction) -> Instant:
    """When an attempt that begins now has to end: an action before the point of no return never outlasts its saga."""
    deadline = Instant(draft.at.now + step.call(direction).timeout_us)
    if direction is Direction.ACTION and not draft.saga.point_of_no_return_passed:
        return min(deadline, draft.saga.deadline_time)
    return deadline


def new_intent(draft: Draft, step: StepPlan, direction: Direction) -> Intent:
    """The row of a call that hasn't been announced before."""
    now = draft.at.now
    method = step.call(direction).method
    return Intent(step=step.name, direction=direction, method=method, created_time=now, updated_time=now)


def _begin(draft: Draft, step: StepPlan) -> None:
    """Announce a step's first attempt; with the pivot's intent, or the first retriable one's, the saga passes the
    point.
    """
    if step.kind in (StepKind.PIVOT, StepKind.RETRIABLE):
        draft.change(point_of_no_return_passed=True)
    draft.announce(new_intent(draft, step, Direction.ACTION), deadline_of(draft, step, Direction.ACTION))
