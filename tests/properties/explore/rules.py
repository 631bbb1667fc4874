"""The promises as checks of one decision, or of one person's verb: the saga before, what came, and what was decided.

Each check is a generator of complaints and names its promise in `CHECKS`. None of them asks the core how it works: they
read the rows. What is true of the world is checked by `truths.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from amends_coordinator.core.effects import (
    DIRECTION_OF,
    CallAction,
    CallCompensation,
    CallLookup,
    Finish,
    Park,
    WakeAt,
)
from amends_coordinator.core.events import Adopted, AttemptEnded, DriverFailed
from amends_coordinator.core.states import (
    DeadLetterReason,
    Direction,
    FailurePolicy,
    IntentState,
    Outcome,
    Resolution,
    SagaState,
    StepKind,
)
from amends_coordinator.core.verbs import RetryDeadLetter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from amends_coordinator.core.decision import Decision
    from amends_coordinator.core.effects import Call
    from amends_coordinator.core.events import Event
    from amends_coordinator.core.ids import StepName
    from amends_coordinator.core.plan import StepPlan
    from amends_coordinator.core.saga import Intent, Saga
    from amends_coordinator.core.verbs import Verb

ROLLING_BACK = (SagaState.COMPENSATING, SagaState.COMPENSATION_FAILED, SagaState.COMPENSATED)
FORWARD_KINDS = (StepKind.PIVOT, StepKind.RETRIABLE)
TOLD_ONLY = (DeadLetterReason.ABORT_TOO_LATE, DeadLetterReason.TIMED_OUT, DeadLetterReason.DRIVER_FAILED)
UNDONE = (IntentState.SUCCEEDED, IntentState.NOTHING_TO_UNDO, IntentState.RESOLVED)


@dataclass(frozen=True, slots=True)
class Move:
    """One decision in its surroundings."""

    before: Saga
    came: Event | Verb
    decision: Decision

    @property
    def saga(self) -> Saga:
        """The saga after the decision."""
        return self.decision.saga

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls that the decision has made."""
        effects = self.decision.effects
        return tuple(e for e in effects if isinstance(e, CallAction | CallCompensation | CallLookup))


def complaints(move: Move, *, by_person: bool) -> list[str]:
    """Every promise that a move breaks."""
    checks = OF_VERBS if by_person else OF_EVENTS
    return [f"{promise}: {complaint}" for promise, check in (*OF_ALL, *checks) for complaint in check(move)]


def intent_first(move: Move) -> Iterator[str]:
    """Every call has its row, in flight, with this attempt's number, among the records of the same decision."""
    rows = {intent.key: intent for intent in move.decision.records.intents}
    announced = {intent.key for intent in move.decision.records.announced}
    for call in move.calls:
        row = rows.get((call.step, DIRECTION_OF[type(call)]))
        if row is None or not row.in_flight or row.attempt != call.attempt or row.key not in announced:
            yield f"{call} is made without its record"
        elif not row.attempts or row.attempts[-1].number != call.attempt or row.attempts[-1].end_time is not None:
            yield f"{call} has no open attempt in its row"
    if announced != {(call.step, DIRECTION_OF[type(call)]) for call in move.calls}:
        yield "what is announced is not what is called"
    if move.decision.changed is not (move.saga != move.before):
        yield "the decision is wrong about having changed something"
    for intent in move.saga.intents:
        if move.before.intent(*intent.key) != intent and rows.get(intent.key) != intent:
            yield f"{intent.key} changed and is not in the records"


def one_key(move: Move) -> Iterator[str]:
    """One row per step and direction; attempts count up; no two calls with one key at the same time."""
    if len({intent.key for intent in move.saga.intents}) != len(move.saga.intents):
        yield "two rows have one key"
    for intent in move.before.intents:
        later = move.saga.intent(*intent.key)
        if later is None or later.attempt < intent.attempt:
            yield f"{intent.key} lost its row, or counts its attempts backwards"
    for call in move.calls:
        before = move.before.intent(call.step, DIRECTION_OF[type(call)])
        if call.attempt != (1 if before is None else before.attempt + 1):
            yield f"{call} is not the next attempt"
        if before is not None and before.in_flight and not _is_over(move, before):
            yield f"{call} is made while one with the same key is in flight"


def _is_over(move: Move, intent: Intent) -> bool:
    came = move.came
    if isinstance(came, AttemptEnded):
        return (came.step, came.direction, came.attempt) == (*intent.key, intent.attempt)
    return isinstance(came, Adopted)


def undone_in_order(move: Move) -> Iterator[str]:
    """No compensation begins beside an action or lookup, nor before those of the later steps are out of the way."""
    for call in move.calls:
        if not isinstance(call, CallCompensation) or call.attempt > 1:
            continue
        if any(intent.in_flight and intent.direction is not Direction.COMPENSATION for intent in move.saga.intents):
            yield f"{call} begins while an action or lookup is in flight"
        yield from (
            f"{call} begins before {later} is out of the way"
            for later in _behind(move.saga, call.step)
            if not out_of_the_way(move.saga, later)
        )
        if move.saga.plan.failure_policy is FailurePolicy.HALT and _starts_a_branch_while_halted(move, call.step):
            yield f"{call} begins another branch although a person is awaited"


def _behind(saga: Saga, name: StepName) -> list[StepName]:
    """All steps that come after a step, directly or through others."""
    found = [name]
    for step in saga.plan.steps:
        if any(before in found for before in step.after) and step.name not in found:
            found.append(step.name)
    return found[1:]


def _starts_a_branch_while_halted(move: Move, name: StepName) -> bool:
    before = move.before
    parked = any(intent.state is IntentState.PARKED for intent in before.intents)
    parked = parked and any(intent.state is IntentState.PARKED for intent in move.saga.intents)
    if before.intent(name, Direction.COMPENSATION) is not None:
        return False  # a person has it called again
    begun = any(before.intent(later, Direction.COMPENSATION) is not None for later in _behind(before, name))
    return parked and before.state in ROLLING_BACK and not begun


def settled(saga: Saga, step: StepPlan) -> bool:
    """Whether nothing is owed for a step, as its rows say."""
    action = saga.intent(step.name, Direction.ACTION)
    if action is None or step.kind is StepKind.READ_ONLY:
        return True
    if action.state in (IntentState.REJECTED, IntentState.DROPPED):
        return True
    if action.state is IntentState.RESOLVED and (
        action.resolution is not Resolution.HAPPENED or step.compensation is None
    ):
        return True
    compensation = saga.intent(step.name, Direction.COMPENSATION)
    return compensation is not None and compensation.state in UNDONE


def out_of_the_way(saga: Saga, name: StepName) -> bool:
    """Whether a step holds back none that it depends on."""
    step = saga.plan.by_name[name]
    if settled(saga, step):
        return True
    if saga.plan.failure_policy is FailurePolicy.HALT:
        return False
    return any(
        intent.state is IntentState.PARKED
        or (
            intent.direction is not Direction.ACTION
            and intent.state is IntentState.PENDING
            and intent.unsent_us >= step.call(intent.direction).retry.total_timeout_us
        )
        for intent in saga.intents
        if intent.step == name
    )


def nothing_is_held_back(move: Move) -> Iterator[str]:
    """Under CONTINUE a compensation that nothing stands before begins at once."""
    saga = move.saga
    if isinstance(move.came, DriverFailed):
        return  # only tells a person
    if saga.state is not SagaState.COMPENSATING or saga.plan.failure_policy is FailurePolicy.HALT:
        return
    if any(intent.in_flight and intent.direction is not Direction.COMPENSATION for intent in saga.intents):
        return
    for step in saga.plan.steps:
        action = saga.intent(step.name, Direction.ACTION)
        happened = action is not None and (
            action.state is IntentState.SUCCEEDED or action.resolution is Resolution.HAPPENED
        )
        if not happened or step.compensation is None or saga.intent(step.name, Direction.COMPENSATION) is not None:
            continue
        if all(out_of_the_way(saga, later) for later in _behind(saga, step.name)):
            yield f"nothing holds back the compensation of {step.name}, and it does not begin"


def no_way_back(move: Move) -> Iterator[str]:
    """Past the point of no return nothing is undone, and only a pivot that will never happen clears it."""
    saga = move.saga
    for call in move.calls:
        kind = saga.plan.by_name[call.step].kind
        if isinstance(call, CallCompensation) and saga.state is not SagaState.COMPENSATING:
            yield f"{call} is made while the saga is {saga.state}"
        if not isinstance(call, CallAction) or call.step in _after_the_end(saga):
            continue
        if kind in FORWARD_KINDS and not saga.point_of_no_return_passed:
            yield f"{call} is made before the point of no return is set"
        if saga.state is not SagaState.RUNNING:
            yield f"{call} is made while the saga is {saga.state}"
    if move.before.point_of_no_return_passed and not saga.point_of_no_return_passed and not _pivot_is_off(saga):
        yield "the point of no return was cleared without proof"
    if saga.state in ROLLING_BACK and saga.point_of_no_return_passed:
        yield f"the saga is {saga.state} past the point of no return"


def _pivot_is_off(saga: Saga) -> bool:
    rows = [saga.intent(step.name, Direction.ACTION) for step in saga.plan.steps if step.kind is StepKind.PIVOT]
    return any(
        row is not None and (row.state is IntentState.REJECTED or row.resolution is Resolution.DID_NOT_HAPPEN)
        for row in rows
    )


def _after_the_end(saga: Saga) -> set[StepName]:
    return {step.name for step in saga.plan.on_compensated}


def runs_alone(move: Move) -> Iterator[str]:
    """Nothing goes on beside a pivot, and no step begins before those that it comes after are done."""
    for call in move.calls:
        step = move.saga.plan.by_name[call.step]
        if not isinstance(call, CallAction):
            continue
        if step.kind is StepKind.PIVOT and sum(intent.in_flight for intent in move.saga.intents) > 1:
            yield f"{call} is made beside another call"
        for name in step.after:
            row = move.saga.intent(name, Direction.ACTION)
            if row is None or row.state not in (IntentState.SUCCEEDED, IntentState.RESOLVED):
                yield f"{call} is made before {name} is done"


def never_twice(move: Move) -> Iterator[str]:
    """An action that is to run at most once isn't called again after an attempt that ended unknown."""
    for call in move.calls:
        before = move.before.intent(call.step, Direction.ACTION)
        step = move.saga.plan.by_name[call.step]
        if isinstance(call, CallAction) and step.at_most_once and before is not None:
            lost = isinstance(move.came, Adopted) and before.in_flight
            if before.unsettled or lost or (isinstance(move.came, AttemptEnded) and _said_nothing(move, before)):
                yield f"{call} is made although an earlier attempt may have run"


def _said_nothing(move: Move, intent: Intent) -> bool:
    came = move.came
    return isinstance(came, AttemptEnded) and came.step == intent.step and came.answer.outcome is Outcome.UNKNOWN


def never_with_a_forgotten_key(move: Move) -> Iterator[str]:
    """A call that may have run isn't repeated once the participant may have forgotten its key, but by force."""
    for call in move.calls:
        direction = DIRECTION_OF[type(call)]
        before = move.before.intent(call.step, direction)
        window_us = move.saga.plan.by_name[call.step].call(direction).idempotency_window_us
        if before is None or not window_us or before.key_forced or isinstance(call, CallLookup):
            continue
        if (before.unsettled or before.in_flight) and move.came.at.now > before.created_time + window_us:
            yield f"{call} is made although its key may be forgotten"


def finds_its_work(move: Move) -> Iterator[str]:
    """A compensation that reads the action's response is never called without one."""
    for call in move.calls:
        plan = move.saga.plan.by_name[call.step].compensation
        if isinstance(call, CallCompensation) and plan is not None and plan.needs_response and not plan.by_key:
            action = move.saga.intent(call.step, Direction.ACTION)
            if action is None or action.response is None:
                yield f"{call} is made, but the response that it needs never arrived"


def own_faults_roll_nothing_back(move: Move) -> Iterator[str]:
    """A crash rolls a saga back only through its timeout, an abort, a step that was to run at most once, or a new call
    whose request can't be built.
    """
    before, saga = move.before, move.saga
    if not isinstance(move.came, Adopted) or before.state is not SagaState.RUNNING or saga.state is SagaState.RUNNING:
        return
    once = any(intent.state is IntentState.PENDING and _runs_once(move, intent) for intent in before.intents)
    is_late = move.came.at.now >= before.deadline_time
    unbuilt = saga.failure is not None and saga.failure.reason == "BINDING_FAILED"
    if saga.state is not SagaState.COMMITTED and not (once or is_late or unbuilt or before.abort_requested):
        yield "a crash alone has rolled a healthy saga back"


def _runs_once(move: Move, intent: Intent) -> bool:
    """Whether what may have run is not repeated: it was to run at most once, or its key may be forgotten by now."""
    step = move.saga.plan.by_name[intent.step]
    window_us = step.action.idempotency_window_us
    forgotten = window_us > 0 and move.came.at.now > intent.created_time + window_us
    return (step.at_most_once or forgotten) and (intent.in_flight or intent.unsettled)


def lost_calls_are_known(move: Move) -> Iterator[str]:
    """After a crash nothing is in flight but what was announced anew."""
    if isinstance(move.came, Adopted):
        announced = {intent.key for intent in move.decision.records.announced}
        yield from (
            f"{intent.key} counts as in flight, and nobody waits for it"
            for intent in move.saga.intents
            if intent.in_flight and intent.key not in announced
        )


def ends_are_final(move: Move) -> Iterator[str]:
    """An end stays, the first cause of a rollback stays, and no dead letter disappears."""
    before, saga = move.before, move.saga
    if before.state.ended and saga.state is not before.state:
        yield f"a {before.state} saga became {saga.state}"
    if before.state is SagaState.COMMITTED and move.calls:
        yield "a committed saga makes calls"
    if before.failure is not None and saga.failure != before.failure:
        yield "the first cause of the rollback was overwritten"
    kept = {letter.id: letter for letter in saga.dead_letters}
    for letter in before.dead_letters:
        later = kept.get(letter.id)
        if later is None or (letter.closed_time is not None and later != letter):
            yield f"dead letter {letter.id} disappeared or was opened again"
    if before.unproven and not saga.unproven:
        yield "the saga is not unproven any more"
    if saga.state.ended is (saga.ended_time is None):
        yield "the time of the end is wrong"


def accepted_aborts_are_kept(move: Move) -> Iterator[str]:
    """After an accepted abort the saga doesn't commit and doesn't pass the point of no return."""
    if not move.before.abort_requested:
        return
    if move.saga.state is SagaState.COMMITTED:
        yield "the saga is committed after an accepted abort"
    if move.saga.point_of_no_return_passed:
        yield "the point of no return is passed after an accepted abort"


def told_once(move: Move) -> Iterator[str]:
    """An end, a dead letter and a due time are told exactly when they are written."""
    effects, saga, before = move.decision.effects, move.saga, move.before
    ends = (SagaState.COMMITTED, SagaState.COMPENSATED, SagaState.COMPENSATION_FAILED)
    finishes = [saga.state] if saga.state in ends and saga.state is not before.state else []
    if [effect.state for effect in effects if isinstance(effect, Finish)] != finishes:
        yield f"told {effects}, but the saga came from {before.state} to {saga.state}"
    opened = saga.dead_letters[len(before.dead_letters) :]
    if tuple(effect.letter for effect in effects if isinstance(effect, Park)) != opened:
        yield "the dead letters that are told are not those that were opened"
    due = [] if saga.due_time is None or isinstance(move.came, DriverFailed) else [saga.due_time]
    if [effect.time for effect in effects if isinstance(effect, WakeAt)] != due:
        yield "the saga is not woken at its due time"


def letters_are_written(move: Move) -> Iterator[str]:
    """Every dead letter that was opened or closed is in the records."""
    kept = {letter.id: letter for letter in move.before.dead_letters}
    changed = {letter.id for letter in move.saga.dead_letters if kept.get(letter.id) != letter}
    if {letter.id for letter in move.decision.records.dead_letters} != changed:
        yield "the dead letters that changed are not those in the records"


def letters_say_what_is_parked(move: Move) -> Iterator[str]:
    """Whatever is parked has an open dead letter, and no dead letter of a call is open without it."""
    letters = [
        (letter.step, letter.direction)
        for letter in move.saga.dead_letters
        if letter.closed_time is None and letter.reason not in TOLD_ONLY
    ]
    parked = [intent.key for intent in move.saga.intents if intent.state is IntentState.PARKED]
    if sorted(letters, key=str) != sorted(parked, key=str):
        yield f"parked is {parked}, and dead letters are open for {letters}"


def somebody_comes_back(move: Move) -> Iterator[str]:
    """A saga that has not ended has a due time, or waits for a person; what is in flight always has a due time."""
    saga = move.saga
    pending = [intent for intent in saga.intents if intent.state is IntentState.PENDING]
    if saga.due_time is None and pending:
        yield "a call is not over and nobody will look at the saga if its driver is gone"
    if saga.state.ended:
        if any(intent.step not in _after_the_end(saga) for intent in pending):
            yield "the saga has ended and still waits for something"
        return
    if saga.due_time is None and not saga.attention_required:
        yield "nobody will ever look at the saga again"
    if saga.state is SagaState.COMPENSATION_FAILED and (not saga.attention_required or pending):
        yield "the saga has failed, and no person is told or something goes on"


def people_make_no_calls(move: Move) -> Iterator[str]:
    """A verb is decided by anybody, so it has no effect that somebody has to carry out, and the saga is due."""
    if move.decision.effects or move.decision.records.announced:
        yield "a verb makes calls"
    if move.saga.due_time is None:
        yield "nobody goes on after the verb"


def people_keep_the_order(move: Move) -> Iterator[str]:
    """A compensation is retried only after those of all steps that depend on its step are settled."""
    if isinstance(move.came, RetryDeadLetter):
        for intent in move.saga.intents:
            before = move.before.intent(*intent.key)
            again = before is not None and before.state is IntentState.PARKED and intent.state is IntentState.PENDING
            if not again or intent.direction is not Direction.COMPENSATION:
                continue
            for later in _behind(move.saga, intent.step):
                if not settled(move.saga, move.saga.plan.by_name[later]):
                    yield f"the compensation of {intent.step} is retried before that of {later} is settled"


OF_ALL: tuple[tuple[str, Callable[[Move], Iterator[str]]], ...] = (
    ("S1", intent_first),
    ("S2", one_key),
    ("S6", no_way_back),
    ("S8", ends_are_final),
    ("S10", accepted_aborts_are_kept),
    ("S11", letters_are_written),
    ("L1", letters_say_what_is_parked),
    ("L1", somebody_comes_back),
)
OF_EVENTS: tuple[tuple[str, Callable[[Move], Iterator[str]]], ...] = (
    ("S2", never_twice),
    ("S2", never_with_a_forgotten_key),
    ("S3", runs_alone),
    ("S4", finds_its_work),
    ("S5", undone_in_order),
    ("L1", nothing_is_held_back),
    ("S11", told_once),
    ("S12", own_faults_roll_nothing_back),
    ("S12", lost_calls_are_known),
)
OF_VERBS: tuple[tuple[str, Callable[[Move], Iterator[str]]], ...] = (
    ("S11", people_make_no_calls),
    ("S5", people_keep_the_order),
)
