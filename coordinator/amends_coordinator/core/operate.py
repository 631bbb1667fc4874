"""Decides the verbs of people (see verbs.py): what each does to the rows of a saga, or why it is refused.

Nothing here makes a call. What may be called again is left waiting with its time come, and the driver announces it; so
a verb can be decided by any node, and its decision holds no effect that anybody has to carry out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from amends_coordinator.core import guards
from amends_coordinator.core.answer import Answer
from amends_coordinator.core.backward import Undoing, go_backward, roll_back, undoing_of_all
from amends_coordinator.core.draft import TOLD_ONLY, Draft
from amends_coordinator.core.forward import is_done
from amends_coordinator.core.saga import Failure, Intent, Saga
from amends_coordinator.core.settle import ask_lookup, new_intent
from amends_coordinator.core.states import (
    DeadLetterReason,
    Direction,
    IntentState,
    Outcome,
    Resolution,
    SagaState,
    StepKind,
)
from amends_coordinator.core.transitions import IntentMove, SagaMove
from amends_coordinator.core.verbs import (
    AskFirst,
    Refusal,
    ResolveDeadLetter,
    RetryDeadLetter,
    RunNow,
    Terminate,
    Verb,
    VerbRefusedError,
)

if TYPE_CHECKING:
    from amends_coordinator.core.decision import Decision
    from amends_coordinator.core.ids import DeadLetterId, Instant
    from amends_coordinator.core.plan import StepPlan
    from amends_coordinator.core.saga import DeadLetter

OF_THE_COORDINATOR = frozenset({DeadLetterReason.UNREADABLE, DeadLetterReason.DRIVER_FAILED})
"""Dead letters about the coordinator's own faults: they are retried, and there is nothing to resolve."""


def accept_abort(saga: Saga, reason: str, now: Instant) -> Saga | None:
    """The saga's row after an abort was asked for; None where it is refused.

    Decided from the saga's row alone, so that the ledger can do it in one statement. An abort that was accepted before,
    or that finds the saga rolling back, changes nothing and is accepted again (S10).
    """
    if saga.state is SagaState.COMMITTED or (saga.state is SagaState.RUNNING and saga.point_of_no_return_passed):
        return None
    if saga.state is not SagaState.RUNNING or saga.abort_requested:
        return saga
    failure = saga.failure or Failure(step=None, reason="ABORTED", status_code="", message=reason, time=now)
    return replace(saga, abort_requested=True, failure=failure, due_time=now, updated_time=now, progress_time=now)


def is_asked_first(saga: Saga, letter_id: DeadLetterId) -> bool:
    """Whether the participant is asked before a person's word about this dead letter is taken: its lookup could seal
    that the action never will run, or say that it did.
    """
    letter = next((each for each in saga.dead_letters if each.id == letter_id), None)
    if letter is None or letter.step is None or letter.direction is not Direction.ACTION:
        return False
    if not guards.letter_is_open(letter) or letter.reason in TOLD_ONLY:
        return False
    step, action = saga.plan.by_name[letter.step], saga.intent(letter.step, Direction.ACTION)
    may_be_rejected = guards.may_be_rejected(saga.plan, step)
    return action is not None and action.unsettled and step.lookup_seals and may_be_rejected


def decide_verb(saga: Saga, verb: Verb) -> Decision:
    """What a person's verb does to a saga. The decision has rows to write and no calls; its saga is due now.

    Args:
        saga: the saga as it stands in the ledger; the write is to be refused if it has changed since.
        verb: what is to be done, with the moment at which it is decided.

    Raises:
        VerbRefusedError: it can't be done as the saga stands; nothing is to be written.
    """
    draft = Draft(saga, verb.at)
    match verb:
        case RetryDeadLetter():
            _retry(draft, _letter(draft, verb.letter), forced=verb.forced)
        case AskFirst():
            _ask_first(draft, _letter(draft, verb.letter))
        case ResolveDeadLetter():
            _resolve(draft, _letter(draft, verb.letter), verb)
        case RunNow():
            _run_now(draft)
        case Terminate():
            _terminate(draft, verb)
    draft.got_on()
    return replace(draft.finished(verb.at.now), effects=())


def _letter(draft: Draft, letter_id: DeadLetterId) -> DeadLetter:
    letter = next((each for each in draft.dead_letters if each.id == letter_id), None)
    if letter is None:
        raise VerbRefusedError(Refusal.LETTER_NOT_FOUND, f"saga {draft.saga.id} has no dead letter {letter_id}")
    if not guards.letter_is_open(letter):
        raise VerbRefusedError(
            Refusal.LETTER_CLOSED, f"dead letter {letter_id} is closed already: look at the saga before you go on"
        )
    return letter


def _parked(draft: Draft, letter: DeadLetter) -> tuple[StepPlan, Intent]:
    """The step and the parked call that a dead letter is about."""
    intent = None if letter.step is None or letter.direction is None else draft.intent(letter.step, letter.direction)
    if intent is None or letter.reason in TOLD_ONLY or intent.state is not IntentState.PARKED:
        raise VerbRefusedError(
            Refusal.NOTHING_TO_REPEAT, f"dead letter {letter.id} only tells you something; resolve it to close it"
        )
    return draft.plan.by_name[intent.step], intent


def _retry(draft: Draft, letter: DeadLetter, *, forced: bool) -> None:
    if letter.reason in OF_THE_COORDINATOR:
        draft.close_dead_letter(letter)
        return
    step, parked = _parked(draft, letter)
    if parked.direction is Direction.COMPENSATION:
        _retry_compensation(draft, step, parked, forced=forced)
    else:
        _retry_action(draft, step, parked, forced=forced)
    _take_up(draft)


def _retry_compensation(draft: Draft, step: StepPlan, parked: Intent, *, forced: bool) -> None:
    undone = [name for name, state in undoing_of_all(draft).items() if state is Undoing.DONE]
    if not guards.may_retry_compensation(undone, draft.plan.descendants[step.name]):
        raise VerbRefusedError(
            Refusal.OUT_OF_ORDER,
            f"steps that depend on {step.name} are not undone yet; settle their dead letters first, newest first",
        )
    expired = guards.key_expired(step.call(parked.direction), parked, draft.at.now)
    if expired and not forced:
        raise _key_expired(step)
    _call_again(draft, parked, although_forgotten=expired)


def _retry_action(draft: Draft, step: StepPlan, parked: Intent, *, forced: bool) -> None:
    rolls_back = draft.saga.state in guards.ROLLING_BACK
    forgotten = guards.key_expired(step.action, parked, draft.at.now)
    expired = forgotten and not forced
    once = step.at_most_once and parked.unsettled
    if not (rolls_back or expired or once):
        _require_predecessors(draft, step)
        _stop_lookup(draft, step)
        _call_again(draft, parked, although_forgotten=forgotten)
    elif step.lookup is not None and parked.attempt > 0:
        draft.move(parked, IntentMove.GIVEN_UP)
        ask_lookup(draft, step)
    elif expired and not rolls_back:
        raise _key_expired(step)
    else:
        raise VerbRefusedError(
            Refusal.NOTHING_TO_REPEAT,
            f"the action of {step.name} is not called again now, and it has no lookup; find out what became of it and"
            " resolve the dead letter",
        )


def _require_predecessors(draft: Draft, step: StepPlan) -> None:
    """All steps that come before it have to be done, not only those just before it: a person may have settled these
    first.
    """
    for name, behind in draft.plan.descendants.items():
        action = draft.intent(name, Direction.ACTION)
        if step.name in behind and (action is None or not is_done(draft.plan, action)):
            raise VerbRefusedError(Refusal.OUT_OF_ORDER, f"{step.name} comes after {name}; settle that one first")


def _key_expired(step: StepPlan) -> VerbRefusedError:
    return VerbRefusedError(
        Refusal.KEY_EXPIRED,
        f"the participant of {step.name} may have forgotten the key by now, and a repeated call could do it twice; find"
        " out what became of it and resolve the dead letter, or force the retry",
    )


def _call_again(draft: Draft, parked: Intent, *, although_forgotten: bool) -> None:
    if although_forgotten:
        draft.change(unproven=True)
    again = draft.move(parked, IntentMove.CALL_AGAIN)
    draft.put(
        again,
        refusals=0,
        spent_us=0,
        unsent_us=0,
        next_attempt_time=draft.at.now,
        key_forced=although_forgotten or parked.key_forced,
    )


def _ask_first(draft: Draft, letter: DeadLetter) -> None:
    """Have the lookup asked once: a single answer spends its budget."""
    step, parked = _parked(draft, letter)
    if not is_asked_first(draft.saga, letter.id):
        raise VerbRefusedError(Refusal.NOTHING_TO_REPEAT, f"the lookup of {parked.step} can settle nothing here")
    ask_lookup(draft, step)
    lookup, retry = draft.intent(step.name, Direction.LOOKUP), step.call(Direction.LOOKUP).retry
    if lookup is not None:
        draft.put(lookup, refusals=retry.maximum_refusals, spent_us=retry.total_timeout_us)
    _take_up(draft)


def _resolve(draft: Draft, letter: DeadLetter, verb: ResolveDeadLetter) -> None:
    if letter.reason in OF_THE_COORDINATOR:
        raise VerbRefusedError(
            Refusal.RESOLUTION_REFUSED, "the coordinator itself failed on this saga: retry it, there is nothing to find"
        )
    if letter.reason in TOLD_ONLY:
        draft.close_dead_letter(letter)
        return
    step, parked = _parked(draft, letter)
    if parked.direction is Direction.COMPENSATION:
        if not guards.may_waive_compensation(verb.resolution):
            raise VerbRefusedError(
                Refusal.RESOLUTION_REFUSED,
                f"the compensation of {step.name} is still owed: retry it, or undo the step by hand and say so",
            )
        _found(draft, parked, verb)
    else:
        _resolve_action(draft, step, parked, verb)
    _take_up(draft)


def _resolve_action(draft: Draft, step: StepPlan, parked: Intent, verb: ResolveDeadLetter) -> None:
    cannot_be_undone = step.kind is not StepKind.COMPENSATABLE
    if verb.resolution is Resolution.UNDONE_BY_HAND and cannot_be_undone:
        raise VerbRefusedError(
            Refusal.RESOLUTION_REFUSED, f"step {step.name} is not one that is undone; say whether it happened"
        )
    if verb.resolution is Resolution.HAPPENED and verb.response is None and _is_response_read(draft, step):
        raise VerbRefusedError(
            Refusal.RESPONSE_REQUIRED, f"the response of {step.name} is read later, so it has to be given with this"
        )
    lookup = draft.intent(step.name, Direction.LOOKUP)
    if lookup is not None and lookup.state is IntentState.PENDING:
        draft.move(lookup, IntentMove.NOT_WANTED)
    found = _found(draft, parked, verb)
    rejected = verb.resolution is not Resolution.HAPPENED and guards.may_be_rejected(draft.plan, step)
    if draft.saga.state is SagaState.RUNNING and rejected:
        failure = Failure(
            step=step.name,
            reason=f"RESOLVED_{verb.resolution}",
            status_code=found.last_code,
            message=f"{verb.person} found that it {_said(verb.resolution)}",
            time=draft.at.now,
        )
        roll_back(draft, failure)


def _is_response_read(draft: Draft, step: StepPlan) -> bool:
    if draft.saga.state is SagaState.RUNNING:
        return step.response_read
    return step.compensation is not None and step.compensation.needs_response


def _found(draft: Draft, parked: Intent, verb: ResolveDeadLetter) -> Intent:
    response = parked.response if verb.response is None else verb.response
    return draft.move(
        parked,
        IntentMove.PERSON_FOUND,
        resolution=verb.resolution,
        resolved_by=verb.person,
        response=response,
        unsettled=False,
    )


def _said(resolution: Resolution) -> str:
    return "did not happen" if resolution is Resolution.DID_NOT_HAPPEN else "was undone by hand"


def _run_now(draft: Draft) -> None:
    if draft.saga.state.ended and draft.saga.due_time is None:
        raise VerbRefusedError(Refusal.SAGA_ENDED, f"saga {draft.saga.id} is {draft.saga.state}: nothing is left to do")
    for intent in draft.intents:
        if intent.waiting:
            draft.put(intent, next_attempt_time=draft.at.now)


def _terminate(draft: Draft, verb: Terminate) -> None:
    if draft.saga.state.ended:
        raise VerbRefusedError(Refusal.SAGA_ENDED, f"saga {draft.saga.id} is {draft.saga.state}: nothing is left to do")
    if draft.saga.state is SagaState.RUNNING and draft.saga.point_of_no_return_passed:
        for step in draft.plan.steps:
            _terminate_forward(draft, step)
        return
    if draft.saga.state is SagaState.RUNNING:
        failure = Failure(step=None, reason="TERMINATED", status_code="", message=verb.reason, time=draft.at.now)
        draft.change(failure=draft.saga.failure or failure)
        draft.move_saga(SagaMove.ROLL_BACK)
    for step in draft.plan.steps:
        _terminate_backward(draft, step)
    _take_up(draft)
    go_backward(draft)


def _terminate_forward(draft: Draft, step: StepPlan) -> None:
    action = draft.intent(step.name, Direction.ACTION)
    if action is None:
        _park_terminated(draft, new_intent(draft, step, Direction.ACTION))
    elif action.state in (IntentState.PENDING, IntentState.UNKNOWN):
        _stop_lookup(draft, step)
        _park_terminated(draft, _stopped(draft, action))


def _terminate_backward(draft: Draft, step: StepPlan) -> None:
    action = draft.intent(step.name, Direction.ACTION)
    if action is None:
        return
    compensation = draft.intent(step.name, Direction.COMPENSATION)
    asked = _stop_lookup(draft, step)
    if action.state is IntentState.PENDING and (step.kind is StepKind.READ_ONLY or _is_nothing_owed(action)):
        draft.move(action, IntentMove.NOT_WANTED)
    elif action.state is IntentState.PENDING or (action.state is IntentState.UNKNOWN and asked):
        _park_terminated(draft, _stopped(draft, action))
    elif step.compensation is not None and guards.owes_undoing(action):
        owed = compensation or new_intent(draft, step, Direction.COMPENSATION)
        if owed.state is IntentState.PENDING:
            _park_terminated(draft, owed if compensation is None else _stopped(draft, owed))


def _is_nothing_owed(action: Intent) -> bool:
    return action.waiting and not action.unsettled


def _stop_lookup(draft: Draft, step: StepPlan) -> bool:
    """Close a lookup that isn't over; answers whether there was one."""
    lookup = draft.intent(step.name, Direction.LOOKUP)
    if lookup is None or lookup.state is not IntentState.PENDING:
        return False
    draft.move(_stopped(draft, lookup), IntentMove.GIVEN_UP)
    return True


def _stopped(draft: Draft, intent: Intent) -> Intent:
    """A call in flight is not waited for any more: what becomes of it is unknown."""
    if not intent.in_flight:
        return intent
    answer = Answer(outcome=Outcome.UNKNOWN, message="it was cancelled because the saga was terminated")
    return draft.put(draft.close_attempt(intent, answer), unsettled=True)


def _park_terminated(draft: Draft, intent: Intent) -> None:
    draft.park(intent, DeadLetterReason.TERMINATED)


def _take_up(draft: Draft) -> None:
    if draft.saga.state is SagaState.COMPENSATION_FAILED:
        draft.move_saga(SagaMove.TAKEN_UP_AGAIN)
