"""The rules that keep the promises, one named predicate each.

Each was found by a timeline that breaks a promise without it. The tests take them away one by one and demand that the
search finds that timeline again (tests/properties/test_guards.py), so the rest of the core asks them through this
module: `guards.is_proof(…)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amends_coordinator.core.states import (
    RUNNING,
    Direction,
    FailurePolicy,
    Guarantee,
    IntentState,
    Outcome,
    Resolution,
    SagaState,
    StepKind,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amends_coordinator.core.answer import Answer
    from amends_coordinator.core.events import AttemptEnded
    from amends_coordinator.core.ids import Instant, StepName
    from amends_coordinator.core.plan import CallPlan, Plan, StepPlan
    from amends_coordinator.core.saga import DeadLetter, Intent, Saga

ROLLING_BACK = frozenset({SagaState.COMPENSATING, SagaState.COMPENSATION_FAILED})
REFUSALS = frozenset({Outcome.REJECTED, Outcome.REJECTED_SEALED, Outcome.WIRING_FAULT})


def is_open(intent: Intent | None, event: AttemptEnded) -> bool:
    """Whether an answer is to the attempt that is in flight: one to attempt n never decides attempt n + 1."""
    return intent is not None and intent.in_flight and intent.attempt == event.attempt


def is_proof(intent: Intent, outcome: Outcome) -> bool:
    """Whether a refusal proves that the action did not happen and never will. After an attempt that ended unknown an
    unsealed one may be the echo of our own success, or the delayed call may still arrive: it means "not yet".
    """
    return outcome is Outcome.REJECTED_SEALED or (outcome is Outcome.REJECTED and not intent.unsettled)


def seal_counts(lookup: Intent, action: Intent) -> bool:
    """Whether a lookup's seal is about the action: a participant can promise that it never runs a key, not that the one
    which was called with the action doesn't.
    """
    return action.participant in ("", lookup.participant)


def may_be_rejected(plan: Plan, step: StepPlan) -> bool:
    """Whether a step can be refused for good; behind the point of no return none can."""
    return step.name not in plan.forward_only


def may_be_guessed(step: StepPlan) -> bool:
    """Whether an unknown action may be taken as having happened or not. A pivot is never guessed."""
    return step.kind is not StepKind.PIVOT


def may_repeat_action(state: SagaState, step: StepPlan, intent: Intent, now: Instant) -> bool:
    """Whether an action may be called again: never once the saga rolls back, nor after an unknown attempt if it was to
    run at most once, nor when the participant may have forgotten the key.
    """
    if state in ROLLING_BACK:
        return False
    return not (intent.unsettled and step.at_most_once) and not key_expired(step.action, intent, now)


def key_expired(call: CallPlan, intent: Intent, now: Instant) -> bool:
    """Whether the participant may have forgotten the key of a call that may have run: repeated, it could run twice."""
    window_us = call.idempotency_window_us
    return window_us > 0 and intent.unsettled and not intent.key_forced and now > intent.created_time + window_us


def finds_its_work(step: StepPlan, action: Intent) -> bool:
    """Whether the compensation can be called: never with an empty id because the action's response is missing."""
    compensation = step.compensation
    return compensation is not None and (action.response is not None or compensation.finds_unanswered_work)


def settles_late(step: StepPlan, action: Intent, lookup: Intent) -> bool:
    """Whether a lookup that found nothing and sealed nothing is believed: it began later than anything of the action
    could still be on its way, and the participant still remembered the key.
    """
    if step.settle_delay_us is None or not may_be_guessed(step):
        return False
    window_us = step.action.idempotency_window_us
    remembered = window_us == 0 or lookup.attempt_start_time <= action.created_time + window_us
    return remembered and lookup.attempt_start_time > settled_time(step, action)


def settled_time(step: StepPlan, action: Intent) -> int:
    """When nothing of an action's last attempt can be on its way any more, as its `settle_delay` says."""
    deadline_time = action.attempt_start_time + step.action.timeout_us
    # An attempt that had to wait for its ledger, its lease or a slot began later than its row says, and so did its
    # deadline.
    last = action.attempts[-1] if action.attempts else None
    if last is not None and last.outcome is Outcome.UNKNOWN and not last.status_code:
        deadline_time += (
            step.action.timeout_us
        )  # whoever made it is gone: it may have waited for a slot as long as it may
    ended_time = None if last is None else last.end_time
    landed_time = deadline_time if ended_time is None else max(deadline_time, ended_time)
    return landed_time + (step.settle_delay_us or 0)


def abort_applies(saga: Saga) -> bool:
    """Whether an abort, or the timeout, rolls the saga back: not past the point of no return (S6, S10)."""
    return saga.state is RUNNING and not saga.point_of_no_return_passed


def soft_abort_applies(plan: Plan, step: StepPlan) -> bool:
    """Whether a participant that succeeded may still ask for the saga to be rolled back."""
    return step.kind is not StepKind.PIVOT and step.name not in plan.forward_only


def calls_have_landed(intents: Iterable[Intent]) -> bool:
    """Whether no action and no lookup is in flight: before that no compensation starts (S5)."""
    return not any(i.in_flight and i.direction is not Direction.COMPENSATION for i in intents)


def parked_holds_back(policy: FailurePolicy) -> bool:
    """Whether a compensation that is parked or stalled holds back those of the steps that its step depends on."""
    return policy is FailurePolicy.HALT


def stalled_is_passed_over(policy: FailurePolicy) -> bool:
    """Whether a call that couldn't be sent for its whole budget stops holding back the older ones."""
    return policy is FailurePolicy.CONTINUE


def nothing_was_there(step: StepPlan, action: Intent, answer: Answer) -> bool:
    """Whether a compensation's answer means that there was nothing to undo: only where the action itself was never
    proven to have happened. The step names the codes; some of them are no refusal where an action says them.
    """
    codes = step.call(Direction.COMPENSATION).nothing_to_undo_codes
    return answer.status_code in codes and answer.outcome is not Outcome.NOT_SENT and action.unsettled


def rests_on_assumption(step: StepPlan, action: Intent) -> bool:
    """Whether a step's end is settled neither by OK nor by a seal, where no barrier keeps a late action out."""
    return action.unsettled and step.kind is not StepKind.READ_ONLY and step.guarantee is not Guarantee.BARRIER


def may_double(step: StepPlan, intent: Intent) -> bool:
    """Whether repeating a call may have doubled its effect, whatever it will answer."""
    changes_something = intent.direction is not Direction.LOOKUP and step.kind is not StepKind.READ_ONLY
    return intent.unsettled and step.guarantee is Guarantee.NONE and changes_something


def may_have_been_sent(intent: Intent) -> bool:
    """Whether a call that an earlier incarnation had in flight may have reached its participant: nobody knows."""
    return intent.in_flight


def owes_undoing(intent: Intent) -> bool:
    """Whether an action happened or may have happened, so that it is to be undone."""
    if intent.state is IntentState.RESOLVED:
        return intent.resolution is Resolution.HAPPENED
    return intent.state in (IntentState.SUCCEEDED, IntentState.UNKNOWN)


def letter_is_open(letter: DeadLetter) -> bool:
    """Whether a person may still act on a dead letter: of two operators one is too late."""
    return letter.closed_time is None


def may_retry_compensation(undone: Iterable[StepName], dependents: Iterable[StepName]) -> bool:
    """Whether a person may have a compensation called again: only after those of all steps that depend on its step."""
    return set(dependents) <= set(undone)


def may_waive_compensation(resolution: Resolution) -> bool:
    """Whether a person's word settles a compensation: that it did not happen settles nothing."""
    return resolution is not Resolution.DID_NOT_HAPPEN
