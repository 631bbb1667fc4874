"""The promises as checks of one move: the saga and the world before, the event, the decision, and the world after.

Each check is a generator of complaints and names its promise. None of them looks into how the core works: they compare
what it decided with what the world knows.
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
from amends_coordinator.core.saga import idempotency_key
from amends_coordinator.core.states import Direction, FailurePolicy, Guarantee, IntentState, SagaState, StepKind
from tests.properties.world import Happened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from amends_coordinator.core.decision import Decision
    from amends_coordinator.core.effects import Call
    from amends_coordinator.core.events import Event
    from amends_coordinator.core.ids import StepName
    from amends_coordinator.core.saga import Saga
    from tests.properties.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One decision in its surroundings. `heard` is the world once the event was heard of, `after` once all was done."""

    before: Saga
    event: Event
    decision: Decision
    heard: World
    after: World

    @property
    def saga(self) -> Saga:
        """The saga after the decision."""
        return self.decision.saga

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls that the decision has made."""
        effects = self.decision.effects
        return tuple(e for e in effects if isinstance(e, CallAction | CallCompensation | CallLookup))


def complaints(move: Move) -> list[str]:
    """Every promise that a move breaks."""
    return [f"{promise}: {complaint}" for promise, check in CHECKS for complaint in check(move)]


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
    """One row and one key per step and direction; attempts count up; no two calls with one key at the same time."""
    keys = [idempotency_key(move.saga.id, intent.step, intent.direction) for intent in move.saga.intents]
    if len(set(keys)) != len(keys):
        yield "two rows have one key"
    for intent in move.before.intents:
        later = move.saga.intent(*intent.key)
        if later is None or later.request != intent.request:
            yield f"{intent.key} lost its row or its request"
        elif later.attempt < intent.attempt:
            yield f"{intent.key} counts its attempts backwards"
    underway = {call[:2] for call in move.heard.calls}
    for call in move.calls:
        before = move.before.intent(call.step, DIRECTION_OF[type(call)])
        if call.attempt != (1 if before is None else before.attempt + 1):
            yield f"{call} is not the next attempt"
        if (call.step, DIRECTION_OF[type(call)]) in underway:
            yield f"{call} is made while one with the same key is in flight"


def committed_means_done(move: Move) -> Iterator[str]:
    """`COMMITTED` only if every step succeeded."""
    if move.saga.state is SagaState.COMMITTED:
        yield from (
            f"committed, but {step.name}: {move.after.happened(step.name).value}"
            for step in move.saga.plan.steps
            if move.after.happened(step.name) is not Happened.YES
        )


def compensated_means_undone(move: Move) -> Iterator[str]:
    """`COMPENSATED` only if nothing stands; and `unproven` where that rests on an assumption."""
    if move.saga.state is not SagaState.COMPENSATED:
        return
    for step in move.saga.plan.steps:
        happened = move.after.happened(step.name)
        if step.kind is StepKind.READ_ONLY:
            continue
        if not move.after.owes_nothing(step.name):
            yield f"compensated, but {step.name}: {happened.value}, and it was not undone"
        if happened is Happened.MAYBE and step.guarantee is not Guarantee.BARRIER and not move.saga.unproven:
            yield f"{step.name} was settled neither by OK nor by a seal, and the saga is not marked unproven"


def finds_its_work(move: Move) -> Iterator[str]:
    """A compensation that reads the action's response is never called without one."""
    for call in move.calls:
        plan = move.saga.plan.by_name[call.step].compensation
        if isinstance(call, CallCompensation) and plan is not None and plan.needs_response and not plan.by_key:
            action = move.saga.intent(call.step, Direction.ACTION)
            if move.after.happened(call.step) is not Happened.YES or action is None or action.response is None:
                yield f"{call} is made, but the response that it needs never arrived"


def undone_in_order(move: Move) -> Iterator[str]:
    """No compensation begins beside an action or lookup, nor before those of the later steps are out of the way."""
    steps = move.saga.plan.steps
    for call in move.calls:
        if not isinstance(call, CallCompensation) or call.attempt > 1:
            continue
        if any(direction is not Direction.COMPENSATION for _, direction, _ in move.after.calls):
            yield f"{call} begins while an action or lookup is in flight"
        position = [step.name for step in steps].index(call.step)
        yield from (
            f"{call} begins before {later.name} is out of the way"
            for later in steps[position + 1 :]
            if later.kind is not StepKind.READ_ONLY and not _out_of_the_way(move, later.name)
        )


def _out_of_the_way(move: Move, name: StepName) -> bool:
    if move.after.owes_nothing(name):
        return True
    if move.saga.plan.failure_policy is FailurePolicy.HALT:
        return False
    step = move.saga.plan.by_name[name]
    intents = [intent for intent in move.saga.intents if intent.step == name]
    return any(
        intent.state is IntentState.PARKED
        or (
            intent.direction is not Direction.ACTION
            and intent.state is IntentState.PENDING
            and intent.unsent_us >= step.call(intent.direction).retry.total_timeout_us
        )
        for intent in intents
    )


def no_way_back(move: Move) -> Iterator[str]:
    """Past the point of no return nothing is undone, and only a pivot that will never happen clears it."""
    kinds = {step.name: step.kind for step in move.saga.plan.steps}
    forward = [name for name, kind in kinds.items() if kind in (StepKind.PIVOT, StepKind.RETRIABLE)]
    for call in move.calls:
        if isinstance(call, CallCompensation):
            if move.saga.point_of_no_return_passed or move.before.point_of_no_return_passed > _pivot_is_off(move):
                yield f"{call} is made past the point of no return"
            if not all(move.after.owes_nothing(name) for name in forward):
                yield f"{call} is made although a step that can't be undone happened or may have happened"
        elif isinstance(call, CallAction):
            if kinds[call.step] in (StepKind.PIVOT, StepKind.RETRIABLE) and not move.saga.point_of_no_return_passed:
                yield f"{call} is made before the point of no return is set"
            if move.saga.state is not SagaState.RUNNING:
                yield f"{call} is made while the saga is {move.saga.state}"
    if move.before.point_of_no_return_passed and not move.saga.point_of_no_return_passed and not _pivot_is_off(move):
        yield "the point of no return was cleared without proof"
    if move.saga.state in (SagaState.COMPENSATING, SagaState.COMPENSATED) and move.saga.point_of_no_return_passed:
        yield f"the saga is {move.saga.state} past the point of no return"


def _pivot_is_off(move: Move) -> bool:
    """Whether the pivot is proven not to happen: a clear refusal of its only attempts, or a seal."""
    pivots = [step.name for step in move.saga.plan.steps if step.kind is StepKind.PIVOT]
    return bool(pivots) and all(move.after.happened(name) in (Happened.NO, Happened.NEVER) for name in pivots)


def ends_are_final(move: Move) -> Iterator[str]:
    """An ended saga never changes, the first cause of a rollback stays, and no dead letter disappears."""
    if move.before.state.ended and (move.decision.changed or move.calls):
        yield f"a {move.before.state} saga changed"
    if move.before.failure is not None and move.saga.failure != move.before.failure:
        yield "the first cause of the rollback was overwritten"
    if move.saga.dead_letters[: len(move.before.dead_letters)] != move.before.dead_letters:
        yield "a dead letter disappeared"
    if move.before.unproven and not move.saga.unproven:
        yield "the saga is not unproven any more"
    if move.saga.state.ended is (move.saga.ended_time is None):
        yield "the time of the end is wrong"


def told_once(move: Move) -> Iterator[str]:
    """An end, a dead letter and a due time are told exactly when they are written."""
    effects = move.decision.effects
    ends = (SagaState.COMMITTED, SagaState.COMPENSATED, SagaState.COMPENSATION_FAILED)
    finishes = [move.saga.state] if move.saga.state in ends and move.saga.state is not move.before.state else []
    if [effect.state for effect in effects if isinstance(effect, Finish)] != finishes:
        yield f"told {effects}, but the saga came from {move.before.state} to {move.saga.state}"
    opened = move.saga.dead_letters[len(move.before.dead_letters) :]
    if tuple(effect.letter for effect in effects if isinstance(effect, Park)) != opened:
        yield "the dead letters that are told are not those that were opened"
    if move.decision.records.dead_letters != opened:
        yield "the dead letters that were opened are not in the records"
    due = [] if move.saga.due_time is None else [move.saga.due_time]
    if [effect.time for effect in effects if isinstance(effect, WakeAt)] != due:
        yield "the saga is not woken at its due time"


def somebody_comes_back(move: Move) -> Iterator[str]:
    """A saga that has not ended has a due time, or waits for a person; what is in flight always has a due time."""
    saga = move.saga
    if saga.state.ended:
        if saga.due_time is not None or any(intent.state is IntentState.PENDING for intent in saga.intents):
            yield "the saga has ended and still waits for something"
        return
    if saga.due_time is None and not saga.attention_required:
        yield "nobody will ever look at the saga again"
    if saga.due_time is None and any(intent.state is IntentState.PENDING for intent in saga.intents):
        yield "a call is not over and nobody will look at the saga if its driver is gone"
    if saga.state is SagaState.COMPENSATION_FAILED and not saga.attention_required:
        yield "the saga can't go on without a person, and no person is told"
    in_flight = {intent.key for intent in saga.intents if intent.in_flight}
    if in_flight != {call[:2] for call in move.after.calls}:
        yield "what the rows say is in flight is not what is in flight"


CHECKS: tuple[tuple[str, Callable[[Move], Iterator[str]]], ...] = (
    ("S1", intent_first),
    ("S2", one_key),
    ("S3", committed_means_done),
    ("S4", compensated_means_undone),
    ("S4", finds_its_work),
    ("S5", undone_in_order),
    ("S6", no_way_back),
    ("S8", ends_are_final),
    ("S11", told_once),
    ("L1", somebody_comes_back),
)
