"""What an attempt's end means for its step: settled, repeated, looked up, given up, or parked.

Unknown is a value. It is repeated with the same key, looked up, or compensated; it is never read as a failure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from amends_coordinator.core import guards
from amends_coordinator.core.budget import Charge, backoff_us, charge
from amends_coordinator.core.ids import Instant
from amends_coordinator.core.saga import Failure, Intent
from amends_coordinator.core.states import DeadLetterReason, Direction, IntentState, OnUnknown, Outcome, StepKind
from amends_coordinator.core.transitions import IntentMove
from amends_coordinator.core.values import maker

if TYPE_CHECKING:
    from amends_coordinator.core.answer import Answer
    from amends_coordinator.core.draft import Draft
    from amends_coordinator.core.plan import StepPlan

_intent = maker(Intent)


def settle_action(draft: Draft, step: StepPlan, intent: Intent, answer: Answer) -> Failure | None:
    """Apply the end of an action's attempt. Returns why the saga has to roll back, or None."""
    if answer.outcome is Outcome.SUCCEEDED:
        return _action_succeeded(draft, step, intent, answer)
    if answer.outcome is not Outcome.NOT_SENT and answer.status_code in step.action.already_done_codes:
        # The effect is there, ours or another's: the lookup knows. If it doesn't, this was a refusal.
        draft.move(intent, IntentMove.GIVEN_UP)
        ask_lookup(draft, step)
        return None
    if guards.may_be_rejected(draft.plan, step) and guards.is_proof(intent, answer.outcome):
        draft.move(intent, IntentMove.REFUSED_FOR_GOOD, unsettled=False)
        return failure_of(draft, intent, answer)
    charged = charge(intent, step.action.retry, answer, draft.at.now, draft.at.fraction)
    intent = _charged(draft, intent, answer, charged)
    if draft.saga.state in guards.ROLLING_BACK and not intent.unsettled:
        draft.move(intent, IntentMove.NOT_WANTED)
        return None
    if not charged.spent and guards.may_repeat_action(draft.saga.state, step, intent, draft.at.now):
        repeat_later(draft, intent, charged.delay_us)
        return None
    return give_up_action(draft, step, intent, answer)


def give_up_action(draft: Draft, step: StepPlan, intent: Intent, answer: Answer) -> Failure | None:
    """An action is not called again. Returns why the saga has to roll back, or None."""
    if not guards.may_be_rejected(draft.plan, step):
        draft.park(intent, reason_to_park(answer))
        return None
    if not intent.unsettled or step.kind is StepKind.READ_ONLY:
        draft.move(intent, IntentMove.REFUSED_FOR_GOOD)
        return failure_of(draft, intent, answer)
    return settle_unknown(draft, step, intent)


def settle_unknown(draft: Draft, step: StepPlan, action: Intent) -> Failure | None:
    """An action's own attempts are over and it is unsettled: look it up, or decide. Returns why to roll back, or
    None.
    """
    if step.lookup is None:
        return _decide_unknown(draft, step, action)
    draft.move(action, IntentMove.GIVEN_UP)
    ask_lookup(draft, step)
    return None


def ask_lookup(draft: Draft, step: StepPlan) -> None:
    """Have the lookup asked as soon as the saga goes on, with a budget of its own; one that is in flight goes on."""
    lookup = draft.intent(step.name, Direction.LOOKUP)
    if lookup is not None and lookup.in_flight:
        draft.put(lookup, refusals=0, spent_us=0, unsent_us=0)
        return
    if lookup is None:
        lookup = new_intent(draft, step, Direction.LOOKUP)
    elif lookup.state is not IntentState.PENDING:
        lookup = draft.move(lookup, IntentMove.CALL_AGAIN)
    draft.put(lookup, refusals=0, spent_us=0, unsent_us=0, next_attempt_time=draft.at.now)


def settle_lookup(draft: Draft, step: StepPlan, lookup: Intent, answer: Answer) -> Failure | None:
    """Apply the end of a lookup's attempt to the action that it asked about."""
    action = action_of(draft, step)
    if answer.outcome is Outcome.SUCCEEDED:
        draft.move(lookup, IntentMove.ANSWERED_OK, response=answer.response)
        return _action_succeeded(draft, step, action, answer)
    if answer.status_code == "NOT_FOUND" and answer.outcome in guards.REFUSALS:
        if answer.outcome is Outcome.REJECTED_SEALED and not guards.seal_counts(lookup, action):
            answer = replace(answer, outcome=Outcome.REJECTED)
        return _settle_not_found(draft, step, lookup, action, answer)
    charged = charge(lookup, step.call(Direction.LOOKUP).retry, answer, draft.at.now, draft.at.fraction)
    lookup = _charged(draft, lookup, answer, charged)
    if not charged.spent:
        repeat_later(draft, lookup, charged.delay_us)
        return None
    return give_up_lookup(draft, step, lookup)


def give_up_lookup(draft: Draft, step: StepPlan, lookup: Intent) -> Failure | None:
    """A lookup is not asked again and has proven nothing. Returns why the saga has to roll back, or None."""
    draft.move(lookup, IntentMove.GIVEN_UP)
    action = action_of(draft, step)
    if action.state is not IntentState.UNKNOWN:
        return None  # parked: a person had it asked, and decides now
    return _decide_unknown(draft, step, draft.put(action, unsettled=True))


def settle_compensation(draft: Draft, step: StepPlan, intent: Intent, answer: Answer) -> None:
    """Apply the end of a compensation's attempt."""
    if answer.outcome is Outcome.SUCCEEDED:
        draft.move(intent, IntentMove.ANSWERED_OK, response=answer.response)
        return
    if guards.nothing_was_there(step, action_of(draft, step), answer):
        draft.move(intent, IntentMove.FOUND_NOTHING)
        return
    call = step.call(Direction.COMPENSATION)
    charged = charge(intent, call.retry, answer, draft.at.now, draft.at.fraction)
    intent = _charged(draft, intent, answer, charged)
    if charged.spent or guards.key_expired(call, intent, draft.at.now):
        draft.park(intent, reason_to_park(answer))
    else:
        repeat_later(draft, intent, charged.delay_us)


def new_intent(draft: Draft, step: StepPlan, direction: Direction) -> Intent:
    """The row of a call that hasn't been announced before."""
    now = draft.at.now
    method = step.call(direction).method
    return _intent(step=step.name, direction=direction, method=method, created_time=now, updated_time=now)


def repeat_later(draft: Draft, intent: Intent, delay_us: int) -> None:
    """Have a call repeated after a delay."""
    draft.put(intent, next_attempt_time=Instant(draft.at.now + delay_us))


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
    return DeadLetterReason.REFUSED if answer.outcome in guards.REFUSALS else DeadLetterReason.BUDGET_SPENT


def action_of(draft: Draft, step: StepPlan) -> Intent:
    """The intent of the step's action.

    Raises:
        LookupError: there is none; a lookup or compensation never comes before it.
    """
    action = draft.intent(step.name, Direction.ACTION)
    if action is None:
        raise LookupError(f"step {step.name} has no action intent")
    return action


def _action_succeeded(draft: Draft, step: StepPlan, action: Intent, answer: Answer) -> Failure | None:
    draft.move(action, IntentMove.ANSWERED_OK, response=answer.response, unsettled=False)
    if answer.abort_reason is None:
        return None
    if not guards.soft_abort_applies(draft.plan, step):
        draft.open_dead_letter(step.name, Direction.ACTION, DeadLetterReason.ABORT_TOO_LATE, answer.abort_reason)
        return None
    return Failure(
        step=step.name, reason="ABORTED_BY_STEP", status_code="OK", message=answer.abort_reason, time=draft.at.now
    )


def _settle_not_found(draft: Draft, step: StepPlan, lookup: Intent, action: Intent, answer: Answer) -> Failure | None:
    """The lookup found nothing: proof where it is sealed or nothing was unknown before, else "not yet"."""
    if not guards.may_be_rejected(draft.plan, step):
        draft.move(lookup, IntentMove.REFUSED_FOR_GOOD)
        return _repeat_refused_action(draft, step, action, answer)
    if guards.is_proof(action, answer.outcome):
        draft.move(lookup, IntentMove.REFUSED_FOR_GOOD)
        draft.move(action, IntentMove.REFUSED_FOR_GOOD, unsettled=False)
        return failure_of(draft, action, answer)
    if guards.settles_late(step, action, lookup):
        draft.change(unproven=True)
        draft.move(lookup, IntentMove.REFUSED_FOR_GOOD)
        draft.move(action, IntentMove.REFUSED_FOR_GOOD)
        return failure_of(draft, action, answer)
    if _is_asked_later(draft, step, action):
        later = guards.settled_time(step, action) + 1 - draft.at.now
        delay = backoff_us(step.call(Direction.LOOKUP).retry, lookup.attempt, draft.at.fraction)
        repeat_later(draft, lookup, max(later, delay))
        return None
    draft.move(lookup, IntentMove.REFUSED_FOR_GOOD)
    if action.state is not IntentState.UNKNOWN:
        return None  # parked: a person had it asked, and decides now
    return _decide_unknown(draft, step, action)


def _is_asked_later(draft: Draft, step: StepPlan, action: Intent) -> bool:
    """Whether asking again, late enough, could still prove something."""
    if step.settle_delay_us is None or not guards.may_be_guessed(step):
        return False
    window_us = step.action.idempotency_window_us
    late_enough = max(guards.settled_time(step, action), draft.at.now)
    return window_us == 0 or late_enough < action.created_time + window_us


def _repeat_refused_action(draft: Draft, step: StepPlan, action: Intent, answer: Answer) -> Failure | None:
    """A step that is never rejected found something there, and it was not ours: that was a refusal."""
    charged = charge(action, step.action.retry, answer, draft.at.now, draft.at.fraction)
    action = draft.put(action, refusals=charged.refusals, spent_us=charged.spent_us)
    if action.state is IntentState.UNKNOWN and not charged.spent:
        repeat_later(draft, draft.move(action, IntentMove.CALL_AGAIN), charged.delay_us)
    elif action.state is IntentState.UNKNOWN:
        draft.park(action, DeadLetterReason.REFUSED)
    return None


def _charged(draft: Draft, intent: Intent, answer: Answer, charged: Charge) -> Intent:
    return draft.put(
        intent,
        refusals=charged.refusals,
        spent_us=charged.spent_us,
        unsent_us=charged.unsent_us,
        unsettled=intent.unsettled or answer.outcome is Outcome.UNKNOWN,
    )


def _decide_unknown(draft: Draft, step: StepPlan, action: Intent) -> Failure | None:
    """Nothing more can be learnt about an action that may have happened."""
    if not guards.may_be_rejected(draft.plan, step):
        draft.park(action, DeadLetterReason.BUDGET_SPENT)
        return None
    if not guards.may_be_guessed(step) or step.on_unknown is OnUnknown.PARK:
        draft.park(action, DeadLetterReason.OUTCOME_UNKNOWN)
        return None
    if not guards.finds_its_work(step, action):
        draft.park(action, DeadLetterReason.OUTCOME_UNKNOWN)
    elif action.state is IntentState.PENDING:
        draft.move(action, IntentMove.GIVEN_UP)
    return Failure(
        step=step.name,
        reason="OUTCOME_UNKNOWN",
        status_code=action.last_code,
        message=action.last_error or "no attempt was answered clearly",
        time=draft.at.now,
    )
