"""What an attempt's end means for its step: settled, repeated, looked up, given up, or parked.

Unknown is a value. It is repeated with the same key, looked up, or compensated; it is never read as a failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amends_coordinator.core.budget import REFUSALS, Charge, charge
from amends_coordinator.core.forward import deadline_of, new_intent
from amends_coordinator.core.ids import Instant
from amends_coordinator.core.saga import Failure
from amends_coordinator.core.states import DeadLetterReason, Direction, IntentState, Outcome, SagaState, StepKind
from amends_coordinator.core.transitions import IntentMove

if TYPE_CHECKING:
    from amends_coordinator.core.answer import Answer
    from amends_coordinator.core.draft import Draft
    from amends_coordinator.core.plan import StepPlan
    from amends_coordinator.core.saga import Intent


def settle_action(draft: Draft, step: StepPlan, intent: Intent, answer: Answer) -> Failure | None:
    """Apply the end of an action's attempt. Returns why the saga has to roll back, or None."""
    if answer.outcome is Outcome.SUCCEEDED:
        return _action_succeeded(draft, step, intent, answer)
    if _refused_for_good(draft, step, intent, answer):
        draft.move(intent, IntentMove.REFUSED_FOR_GOOD, unsettled=False)
        return failure_of(draft, intent, answer)
    charged = charge(intent, step.action.retry, answer, draft.at.now, draft.at.fraction)
    intent = _charged(draft, intent, answer, charged)
    if draft.saga.state is not SagaState.RUNNING:
        return _stop_retrying(draft, step, intent)
    if not charged.spent:
        _repeat_later(draft, intent, charged.delay_us)
        return None
    return _action_budget_spent(draft, step, intent, answer)


def settle_unknown(draft: Draft, step: StepPlan, action: Intent) -> Failure | None:
    """An action's own attempts are over and it is unsettled: look it up, or decide. Returns why to roll back, or
    None.
    """
    if step.lookup is not None and draft.intent(step.name, Direction.LOOKUP) is None:
        draft.move(action, IntentMove.GIVEN_UP)
        draft.announce(new_intent(draft, step, Direction.LOOKUP), deadline_of(draft, step, Direction.LOOKUP))
        return None
    return _decide_unknown(draft, step, action)


def settle_lookup(draft: Draft, step: StepPlan, lookup: Intent, answer: Answer) -> Failure | None:
    """Apply the end of a lookup's attempt to the action that it asked about."""
    action = _action_of(draft, step)
    if answer.outcome is Outcome.SUCCEEDED:
        draft.move(lookup, IntentMove.ANSWERED_OK, response=answer.response)
        return _action_succeeded(draft, step, action, answer)
    if answer.status_code == "NOT_FOUND" and answer.outcome in REFUSALS:
        draft.move(lookup, IntentMove.REFUSED_FOR_GOOD)
        if answer.outcome is Outcome.REJECTED_SEALED:
            draft.move(action, IntentMove.REFUSED_FOR_GOOD, unsettled=False)
            return failure_of(draft, action, answer)
        return _decide_unknown(draft, step, action)
    charged = charge(lookup, step.call(Direction.LOOKUP).retry, answer, draft.at.now, draft.at.fraction)
    lookup = _charged(draft, lookup, answer, charged)
    if not charged.spent:
        _repeat_later(draft, lookup, charged.delay_us)
        return None
    draft.move(lookup, IntentMove.GIVEN_UP)
    return _decide_unknown(draft, step, action)


def settle_compensation(draft: Draft, step: StepPlan, intent: Intent, answer: Answer) -> None:
    """Apply the end of a compensation's attempt."""
    if answer.outcome is Outcome.SUCCEEDED:
        draft.move(intent, IntentMove.ANSWERED_OK, response=answer.response)
        return
    # "Not found" proves that there is nothing to undo only where the action itself was never proven to have happened.
    if answer.status_code == "NOT_FOUND" and answer.outcome in REFUSALS and _action_of(draft, step).unsettled:
        draft.move(intent, IntentMove.FOUND_NOTHING)
        return
    charged = charge(intent, step.call(Direction.COMPENSATION).retry, answer, draft.at.now, draft.at.fraction)
    intent = _charged(draft, intent, answer, charged)
    if charged.spent:
        draft.park(intent, reason_to_park(answer))
    else:
        _repeat_later(draft, intent, charged.delay_us)


def failure_of(draft: Draft, intent: Intent, answer: Answer) -> Failure:
    """The cause of a rollback that an answer gives."""
    reason = answer.reason or answer.status_code or answer.outcome.value
    return Failure(
        step=intent.step,
        reason=reason,
        status_code=answer.status_code,
        message=answer.message or intent.last_error,
        time=draft.at.now,
    )


def reason_to_park(answer: Answer) -> DeadLetterReason:
    """Why a person is needed, from the answer that spent the budget."""
    if answer.outcome is Outcome.WIRING_FAULT:
        return DeadLetterReason.NO_HANDLER
    return DeadLetterReason.REFUSED if answer.outcome in REFUSALS else DeadLetterReason.BUDGET_SPENT


def _action_succeeded(draft: Draft, step: StepPlan, action: Intent, answer: Answer) -> Failure | None:
    draft.move(action, IntentMove.ANSWERED_OK, response=answer.response, unsettled=False)
    if answer.abort_reason is None:
        return None
    if step.kind is StepKind.PIVOT or step.name in draft.plan.forward_only:
        draft.open_dead_letter(step.name, Direction.ACTION, DeadLetterReason.ABORT_TOO_LATE, answer.abort_reason)
        return None
    return Failure(
        step=step.name, reason="ABORTED_BY_STEP", status_code="OK", message=answer.abort_reason, time=draft.at.now
    )


def _refused_for_good(draft: Draft, step: StepPlan, intent: Intent, answer: Answer) -> bool:
    """Whether an answer proves that the action did not happen and never will; a forward-only step is never rejected."""
    if step.name in draft.plan.forward_only:
        return False
    if answer.outcome is Outcome.REJECTED_SEALED:
        return True
    # After an attempt that ended unknown, an unsealed refusal may be the echo of our own success: it means "not yet".
    return answer.outcome is Outcome.REJECTED and not intent.unsettled


def _charged(draft: Draft, intent: Intent, answer: Answer, charged: Charge) -> Intent:
    return draft.put(
        intent,
        refusals=charged.refusals,
        spent_us=charged.spent_us,
        unsent_us=charged.unsent_us,
        unsettled=intent.unsettled or answer.outcome is Outcome.UNKNOWN,
    )


def _repeat_later(draft: Draft, intent: Intent, delay_us: int) -> None:
    draft.put(intent, next_attempt_time=Instant(draft.at.now + delay_us))


def _stop_retrying(draft: Draft, step: StepPlan, intent: Intent) -> Failure | None:
    """While the saga rolls back no action is repeated: it is settled by a lookup or decided, or it never happened."""
    if intent.unsettled:
        return settle_unknown(draft, step, intent)
    draft.move(intent, IntentMove.NOT_WANTED)
    return None


def _action_budget_spent(draft: Draft, step: StepPlan, intent: Intent, answer: Answer) -> Failure | None:
    if step.name in draft.plan.forward_only:
        draft.park(intent, reason_to_park(answer))
        return None
    if not intent.unsettled or step.kind is StepKind.READ_ONLY:
        draft.move(intent, IntentMove.REFUSED_FOR_GOOD)
        return failure_of(draft, intent, answer)
    return settle_unknown(draft, step, intent)


def _decide_unknown(draft: Draft, step: StepPlan, action: Intent) -> Failure | None:
    """Nothing more can be learnt about an action that may have happened."""
    if step.kind is StepKind.PIVOT:
        draft.park(action, DeadLetterReason.OUTCOME_UNKNOWN)
        return None
    if step.compensation is not None and step.compensation.finds_unanswered_work:
        if action.state is IntentState.PENDING:
            draft.move(action, IntentMove.GIVEN_UP)
    else:
        draft.park(action, DeadLetterReason.OUTCOME_UNKNOWN)
    return Failure(
        step=step.name,
        reason="OUTCOME_UNKNOWN",
        status_code=action.last_code,
        message=action.last_error or "no attempt was answered clearly",
        time=draft.at.now,
    )


def _action_of(draft: Draft, step: StepPlan) -> Intent:
    action = draft.intent(step.name, Direction.ACTION)
    if action is None:
        raise LookupError(f"step {step.name} has no action intent")
    return action
