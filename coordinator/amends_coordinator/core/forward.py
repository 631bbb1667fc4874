"""Forward: announces the next steps of a running saga, and commits it when every step is done. The steps that follow a
compensated saga begin in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amends_coordinator.core import guards
from amends_coordinator.core.effects import Finish
from amends_coordinator.core.ids import Instant
from amends_coordinator.core.settle import new_intent
from amends_coordinator.core.states import ACTION, RUNNING, Direction, IntentState, Resolution, SagaState, StepKind
from amends_coordinator.core.transitions import SagaMove

if TYPE_CHECKING:
    from amends_coordinator.core.draft import Draft
    from amends_coordinator.core.plan import Plan, StepPlan
    from amends_coordinator.core.saga import Intent

_PASSING = frozenset({StepKind.PIVOT, StepKind.RETRIABLE})
"""The kinds of steps whose intent passes the point of no return."""


def go_forward(draft: Draft) -> None:
    """Announce every step whose predecessors are done; commit if there is nothing left to do."""
    repeat_due_attempts(draft)
    if _begin_what_can(draft, draft.plan.steps):
        draft.change(point_of_no_return_passed=True)
        draft.move_saga(SagaMove.EVERY_STEP_DONE)
        draft.effect(Finish(SagaState.COMMITTED))


def go_on_compensated(draft: Draft) -> None:
    """Announce the steps that follow a compensated saga; whatever becomes of them, its state stays."""
    repeat_due_attempts(draft)
    _begin_what_can(draft, draft.plan.on_compensated)


def repeat_due_attempts(draft: Draft) -> None:
    """Announce the next attempt of every call whose time has come."""
    for intent in draft.pending:
        if not _is_due(intent, draft) or waits_for_calls(draft, intent):
            continue
        step = draft.plan.by_name[intent.step]
        if guards.may_double(step, intent):
            draft.change(unproven=True)
        draft.announce(intent, deadline_of(draft, step, intent.direction))


def waits_for_calls(draft: Draft, intent: Intent) -> bool:
    """Whether a compensation that a person has retried and that was never called waits for actions and lookups in
    flight, or about to be.
    """
    if intent.direction is not Direction.COMPENSATION or intent.attempt > 0 or not intent.waiting:
        return False
    is_due = any(
        other.waiting and other.direction is not Direction.COMPENSATION and _is_due(other, draft)
        for other in draft.intents
    )
    return is_due or not guards.calls_have_landed(draft.intents)


def _is_due(intent: Intent, draft: Draft) -> bool:
    return intent.next_attempt_time is not None and intent.next_attempt_time <= draft.at.now


def deadline_of(draft: Draft, step: StepPlan, direction: Direction) -> Instant:
    """When an attempt that begins now has to end: an action before the point of no return never outlasts its saga."""
    deadline = Instant(draft.at.now + step.call(direction).timeout_us)
    if direction is ACTION and guards.abort_applies(draft.saga):
        return min(deadline, draft.saga.deadline_time)
    return deadline


def is_done(plan: Plan, action: Intent) -> bool:
    """Whether a step's action counts as done for those that follow it: it succeeded, or a named person said that it
    happened, or waived it where it can't be rejected.
    """
    if action.state is IntentState.SUCCEEDED:
        return True
    is_settled = action.resolution is Resolution.HAPPENED or action.step in plan.forward_only
    return action.state is IntentState.RESOLVED and is_settled


def _begin_what_can(draft: Draft, steps: tuple[StepPlan, ...]) -> bool:
    """Announce each step whose predecessors are done; answers whether all are done."""
    done = {action.step for action in draft.actions if is_done(draft.plan, action)}
    is_all_done = True
    for step in steps:
        if step.name not in done:
            is_all_done = False
            if done.issuperset(step.after) and draft.intent(step.name, ACTION) is None:
                _begin(draft, step)
    return is_all_done


def _begin(draft: Draft, step: StepPlan) -> None:
    """Announce a step's first attempt; with the pivot's intent, or the first retriable one's, the saga passes the
    point.
    """
    if step.kind in _PASSING and draft.saga.state is RUNNING:
        draft.change(point_of_no_return_passed=True)
    draft.announce(new_intent(draft, step, ACTION), deadline_of(draft, step, ACTION))
