"""Rows and decisions: what is kept of attempts, what a decision carries, and how two become one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amends_coordinator.core.decide import decide
from amends_coordinator.core.effects import CallAction, CallCompensation, Finish, WakeAt
from amends_coordinator.core.events import Adopted, AttemptEnded, BindingFailed, Started, Woken
from amends_coordinator.core.ids import SagaId, StepName
from amends_coordinator.core.saga import Saga, idempotency_key
from amends_coordinator.core.states import Direction, IntentState, Outcome, SagaState
from amends_coordinator.core.transitions import (
    INTENT_TRANSITIONS,
    SAGA_TRANSITIONS,
    IllegalTransitionError,
    IntentMove,
    SagaMove,
    move_intent,
    move_saga,
)
from tests.unit.core.sagas import at, read, retriable, retry, saga_of, saga_with, step
from tests.unit.core.stories import answer

RESERVE = StepName("reserve")


def started(saga: Saga) -> Saga:
    """The saga with its first step announced."""
    return decide(saga, Started(at(0))).saga


@pytest.mark.parametrize("move", SagaMove)
@pytest.mark.parametrize("state", SagaState)
def test_saga_moves_are_those_of_the_table(state: SagaState, move: SagaMove) -> None:
    """S8: what is absent from the table is illegal."""
    target = SAGA_TRANSITIONS.get((state, move))
    if target is None:
        with pytest.raises(IllegalTransitionError, match=state.value):
            move_saga(state, move)
    else:
        assert move_saga(state, move) is target


@pytest.mark.parametrize("move", IntentMove)
@pytest.mark.parametrize("state", IntentState)
def test_intent_moves_are_those_of_the_table(state: IntentState, move: IntentMove) -> None:
    """S8: what is absent from the table is illegal."""
    target = INTENT_TRANSITIONS.get((state, move))
    if target is None:
        with pytest.raises(IllegalTransitionError, match=state.value):
            move_intent(state, move)
    else:
        assert move_intent(state, move) is target


def test_key_is_the_same_for_all_attempts_and_no_other_call() -> None:
    """S2: saga id, step and direction, and nothing else."""
    keys = {idempotency_key(SagaId("order-1"), RESERVE, direction) for direction in Direction}
    assert keys == {"order-1/reserve/action", "order-1/reserve/compensation", "order-1/reserve/lookup"}


def test_first_and_last_attempts_are_kept_whole() -> None:
    """S2: of many attempts the first 5 and the last 20 stay, the rest are counted by status code."""
    saga = started(
        saga_of(
            retriable(
                "reserve",
            ),
            timeout_s=10**9,
        )
    )
    for number in range(1, 101):
        said = answer("not sent" if number % 2 else "UNAVAILABLE executed=no")
        saga = decide(saga, AttemptEnded(at(number * 10), RESERVE, Direction.ACTION, number, said)).saga
        saga = decide(saga, Woken(at(number * 10 + 8))).saga
    intent = saga.intents[0]
    assert [attempt.number for attempt in intent.attempts] == [*range(1, 6), *range(82, 102)]
    assert dict(intent.attempts_left_out) == {"UNAVAILABLE": 38, "NO_ANSWER": 38}
    assert intent.attempt == 101
    assert intent.attempts[-1].end_time is None


def test_row_tells_how_each_attempt_ended() -> None:
    """S11: node, times, code and outcome of each; the last error stays readable after a success."""
    saga = started(saga_of(step("reserve"), step("pay")))
    saga = decide(saga, AttemptEnded(at(1), RESERVE, Direction.ACTION, 1, answer("DEADLINE_EXCEEDED"))).saga
    assert (saga.intents[0].last_error, saga.intents[0].last_code) == ("it said DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED")
    saga = decide(saga, Woken(at(2, node="node-2"))).saga
    saga = decide(saga, AttemptEnded(at(3), RESERVE, Direction.ACTION, 2, answer("OK"))).saga
    row = saga.intents[0]
    assert [
        (attempt.node, attempt.start_time, attempt.end_time, attempt.status_code, attempt.outcome)
        for attempt in row.attempts
    ] == [
        ("node-1", at(0).now, at(1).now, "DEADLINE_EXCEEDED", Outcome.UNKNOWN),
        ("node-2", at(2).now, at(3).now, "OK", Outcome.SUCCEEDED),
    ]
    assert (row.last_error, row.last_code) == ("it said DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED")
    assert (row.created_time, row.updated_time, saga.updated_time) == (at(0).now, at(3).now, at(3).now)
    garbage = decide(saga, AttemptEnded(at(4), StepName("pay"), Direction.ACTION, 1, answer("garbage"))).saga
    assert garbage.intents[1].last_error == "it said garbage"


def test_saga_starts_once() -> None:
    """S9: `Started` is only for a saga of which nothing is announced."""
    with pytest.raises(IllegalTransitionError, match="order-1"):
        decide(started(saga_of(step("reserve"))), Started(at(1)))
    ended_without_a_call = decide(saga_of(step("reserve"), timeout_s=1), Started(at(2))).saga
    with pytest.raises(IllegalTransitionError, match="order-1"):
        decide(ended_without_a_call, Started(at(3)))


def test_binding_fails_only_where_the_first_attempt_begins() -> None:
    """S1, S4: later attempts send the bytes of the first one, so their binding can't make it undone."""
    saga = started(saga_of(step("reserve"), step("pay")))
    with pytest.raises(IllegalTransitionError, match="pay/ACTION"):
        decide(saga, BindingFailed(at(1), StepName("pay"), Direction.ACTION, "no such field"))
    waiting = decide(saga, AttemptEnded(at(1), RESERVE, Direction.ACTION, 1, answer("UNAVAILABLE"))).saga
    repeated = decide(waiting, Woken(at(2))).saga
    for later in (waiting, repeated):
        with pytest.raises(IllegalTransitionError, match="reserve/ACTION"):
            decide(later, BindingFailed(at(3), RESERVE, Direction.ACTION, "no such field"))


def test_request_is_filled_in_everywhere() -> None:
    """S1: the row that is written and the saga that is kept carry the same bytes."""
    decision = decide(saga_of(step("reserve")), Started(at(0)))
    decision.fill_request(decision.records.announced[0], b"request")
    assert decision.saga.intents == decision.records.intents == decision.records.announced
    assert decision.saga.intents[0].request == b"request"


def test_what_was_decided_before_is_never_filled_in() -> None:
    """S11: rows that are durable stay as they are; a decision changes copies of its own."""
    before = started(saga_of(step("reserve"), step("pay")))
    kept = replace(before, intents=tuple(replace(intent) for intent in before.intents))
    decision = decide(before, AttemptEnded(at(1), RESERVE, Direction.ACTION, 1, answer("OK")))
    decision.fill_request(decision.records.announced[0], b"request")
    assert decision.saga != kept
    assert before == kept


def test_decision_whose_call_cannot_be_made_becomes_one_with_the_next() -> None:
    """S1: the call and the wake-up that the first part wanted are gone; what it recorded is written with the second."""
    saga = started(saga_of(step("reserve"), step("pay")))
    first = decide(saga, AttemptEnded(at(1), RESERVE, Direction.ACTION, 1, answer("OK")))
    pay = first.records.announced[0]
    second = decide(first.saga, BindingFailed(at(1), pay.step, pay.direction, "no such field"))
    both = first.followed_by(second)
    assert [type(effect) for effect in both.effects] == [CallCompensation, WakeAt]
    assert [(row.step, row.direction, row.state) for row in both.records.intents] == [
        (RESERVE, Direction.ACTION, IntentState.SUCCEEDED),
        (pay.step, Direction.ACTION, IntentState.REJECTED),
        (RESERVE, Direction.COMPENSATION, IntentState.PENDING),
    ]
    assert [row.key for row in both.records.announced] == [(RESERVE, Direction.COMPENSATION)]
    assert both.saga == second.saga
    assert both.changed


def test_effects_of_a_beginning_and_of_an_end() -> None:
    """S1, S11, L1: a call comes with a due time, in case its driver dies; an end asks for nothing more."""
    first = decide(saga_of(step("reserve", budget=retry()), timeout_s=100), Started(at(0)))
    assert first.effects == (CallAction(RESERVE, 1, at(5).now), WakeAt(at(10).now))
    last = decide(first.saga, AttemptEnded(at(1), RESERVE, Direction.ACTION, 1, answer("OK")))
    assert last.effects == (Finish(SagaState.COMMITTED),)
    assert last.saga.due_time is None


def test_what_changes_nothing_writes_nothing() -> None:
    """L2: waking too early, or adopting a saga that only waits, costs the ledger nothing."""
    saga = started(saga_of(step("reserve")))
    waiting = decide(saga, AttemptEnded(at(1), RESERVE, Direction.ACTION, 1, answer("UNAVAILABLE"))).saga
    for event in (Woken(at(1.5)), Adopted(at(1.5))):
        decision = decide(waiting, event)
        assert not decision.changed
        assert decision.saga is waiting
        assert decision.effects == (WakeAt(at(2).now),)


def test_calls_beside_one_that_cannot_be_made_are_not_made() -> None:
    """S1, S6: none of them was sent when the saga begins to roll back, so nothing is owed for them."""
    saga = saga_with((step("reserve", needs_response=False), step("pay"), read("check")))
    first = decide(saga, Started(at(0)))
    reserve, *beside = first.records.announced
    failed = BindingFailed(at(0), reserve.step, reserve.direction, "no such field", tuple(each.key for each in beside))
    both = first.followed_by(decide(first.saga, failed))
    assert both.saga.state is SagaState.COMPENSATED
    assert both.records.announced == ()
    assert [type(effect) for effect in both.effects] == [Finish]
    assert [(row.state, row.attempt) for row in both.saga.intents] == [
        (IntentState.REJECTED, 0),
        (IntentState.DROPPED, 0),
        (IntentState.DROPPED, 0),
    ]


def test_a_repeated_call_beside_one_that_cannot_be_made() -> None:
    """S4: it isn't repeated, and what its first attempt may have done is undone."""
    saga = started(saga_with((step("reserve", needs_response=False), step("book"), step("pay", after=("book",)))))
    saga = decide(saga, AttemptEnded(at(1), RESERVE, Direction.ACTION, 1, answer("UNAVAILABLE"))).saga
    first = decide(saga, AttemptEnded(at(2), StepName("book"), Direction.ACTION, 1, answer("OK")))
    pay = next(row for row in first.records.announced if row.step == "pay")
    beside = tuple(row.key for row in first.records.announced if row is not pay)
    assert beside == ((RESERVE, Direction.ACTION),)
    both = first.followed_by(decide(first.saga, BindingFailed(at(2), pay.step, pay.direction, "no such field", beside)))
    undone = [(RESERVE, Direction.COMPENSATION), (StepName("book"), Direction.COMPENSATION)]
    assert sorted(row.key for row in both.records.announced) == sorted(undone)
    assert [type(effect) for effect in both.effects] == [CallCompensation, CallCompensation, WakeAt]
    (reserve,) = (row for row in both.saga.intents if row.key == (RESERVE, Direction.ACTION))
    assert (reserve.state, reserve.attempt, reserve.unsettled) == (IntentState.UNKNOWN, 1, True)
