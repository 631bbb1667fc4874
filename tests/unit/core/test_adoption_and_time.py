"""Stories of crashes and timeouts: what another incarnation finds, and what the clock decides."""

from __future__ import annotations

from amends_coordinator.core.decide import decide
from amends_coordinator.core.effects import CallAction, CallCompensation
from amends_coordinator.core.events import AttemptEnded, Started
from amends_coordinator.core.ids import StepName
from amends_coordinator.core.states import Direction, SagaState
from tests.unit.core.sagas import SECOND, at, pivot, read, retriable, retry, saga_of, step
from tests.unit.core.stories import answer, play


def test_action_in_flight_is_repeated_after_a_crash() -> None:
    """S12: it ended unknown, costs nothing however long nobody drove the saga, and rolls nothing back."""
    saga = play(
        saga_of(step("reserve"), timeout_s=1_000_000),
        """
        start
          call reserve action #1
        [5000s] adopt
          call reserve action #2
        [9000s] adopt
          call reserve action #3
        reserve FAILED_PRECONDITION
          reserve action waits until 9005s
        wake
          call reserve action #4
        reserve OK
          reserve action SUCCEEDED
          point of no return passed
          saga COMMITTED
        """,
    )
    assert [attempt.node for attempt in saga.intents[0].attempts] == ["node-1", "node-2", "node-2", "node-1"]
    assert saga.intents[0].spent_us == 5 * SECOND


def test_waiting_action_keeps_waiting_after_a_crash() -> None:
    """S12, L1: an adoption neither hurries nor forgets what waits."""
    play(
        saga_of(step("reserve"), timeout_s=1000),
        """
        start
          call reserve action #1
        reserve UNAVAILABLE
          reserve action waits until 2s
        [1.5s] adopt
          nothing
        wake
          call reserve action #2
        """,
    )


def test_compensation_in_flight_is_repeated_after_a_crash() -> None:
    """S2, L1: with the same key, in both rolling-back phases."""
    play(
        saga_of(step("order"), step("reserve")),
        """
        start
          call order action #1
        order OK
          order action SUCCEEDED
          call reserve action #1
        reserve OUT_OF_RANGE
          reserve action REJECTED
          saga COMPENSATING, OUT_OF_RANGE of reserve
          call order compensation #1
        adopt
          call order compensation #2
        order compensation #1 OK
          late answer dropped
        order compensation OK
          order compensation SUCCEEDED
          saga COMPENSATED
        """,
    )


def test_lookup_in_flight_is_repeated_after_a_crash() -> None:
    """S2: a question may be asked twice."""
    play(
        saga_of(step("reserve", lookup=True, budget=retry(total_s=2))),
        """
        start
          call reserve action #1
        reserve UNAVAILABLE
          reserve action UNKNOWN
          call reserve lookup #1
        adopt
          call reserve lookup #2
        """,
    )


def test_past_the_point_there_is_only_forward_after_a_crash() -> None:
    """S6, S12: long after the saga's timeout the pivot is called again, and a person is told."""
    play(
        saga_of(step("reserve"), pivot("ship"), timeout_s=10),
        """
        start
          call reserve action #1
        reserve OK
          reserve action SUCCEEDED
          point of no return passed
          call ship action #1
        [5000s] adopt
          dead letter: saga TIMED_OUT
          call ship action #2
        ship OK
          ship action SUCCEEDED
          saga COMMITTED
        """,
    )


def test_adoption_after_the_deadline_settles_what_was_in_flight() -> None:
    """S4, S12: the timeout comes first; the action isn't repeated any more, it may have happened."""
    play(
        saga_of(step("reserve", needs_response=False), timeout_s=10),
        """
        start
          call reserve action #1
        [11s] adopt
          reserve action UNKNOWN
          saga COMPENSATING, TIMED_OUT of the saga
          call reserve compensation #1
        """,
    )


def test_adoption_after_the_deadline_asks_the_lookup_once() -> None:
    """S2: the lookup that the timeout announces belongs to this decision and is not taken for an orphan of it."""
    saga = play(
        saga_of(step("reserve", lookup=True), timeout_s=10),
        """
        start
          call reserve action #1
        reserve UNAVAILABLE
          reserve action waits until 2s
        [11s] adopt
          reserve action UNKNOWN
          saga COMPENSATING, TIMED_OUT of the saga
          call reserve lookup #1
        reserve lookup OK
          reserve lookup SUCCEEDED
          reserve action SUCCEEDED
          call reserve compensation #1
        """,
    )
    assert [intent.attempt for intent in saga.intents] == [1, 1, 1]


def test_timeout_asks_the_lookup_on() -> None:
    """S4: a lookup that waits when the saga rolls back is still asked; only the action isn't repeated."""
    play(
        saga_of(step("reserve", lookup=True, budget=retry(total_s=2)), timeout_s=3),
        """
        start
          call reserve action #1
        reserve UNAVAILABLE
          reserve action UNKNOWN
          call reserve lookup #1
        reserve lookup not sent
          reserve lookup waits until 3s
        wake
          saga COMPENSATING, TIMED_OUT of the saga
          call reserve lookup #2
        reserve lookup OK
          reserve lookup SUCCEEDED
          reserve action SUCCEEDED
          call reserve compensation #1
        """,
    )


def test_timeout_waits_for_the_call_in_flight() -> None:
    """S5: nothing is undone while an action is in flight; its answer still counts, and it isn't repeated."""
    play(
        saga_of(step("order"), step("reserve"), timeout_s=10),
        """
        start
          call order action #1
        order OK
          order action SUCCEEDED
          call reserve action #1
        [10s] wake
          saga COMPENSATING, TIMED_OUT of the saga
        reserve OK
          reserve action SUCCEEDED
          call reserve compensation #1
        reserve compensation OK
          reserve compensation SUCCEEDED
          call order compensation #1
        """,
    )


def test_refusal_of_the_call_in_flight_owes_nothing() -> None:
    """S4: what is refused, not sent or miswired while the saga rolls back never happened and is dropped."""
    for said, state in (("UNIMPLEMENTED", "DROPPED"), ("not sent", "DROPPED"), ("NOT_FOUND", "REJECTED")):
        play(
            saga_of(step("reserve"), timeout_s=10),
            f"""
            start
              call reserve action #1
            [10s] wake
              saga COMPENSATING, TIMED_OUT of the saga
            reserve {said}
              reserve action {state}
              saga COMPENSATED
            """,
        )


def test_timeout_drops_what_waits_and_was_never_sent() -> None:
    """S4: every attempt was answered clearly or never left, so nothing is owed."""
    saga = play(
        saga_of(step("reserve"), timeout_s=2),
        """
        start
          call reserve action #1
        reserve not sent
          reserve action waits until 2s
        wake
          reserve action DROPPED
          saga COMPENSATED, TIMED_OUT of the saga
        """,
    )
    assert not saga.unproven


def test_timeout_drops_a_read_only_step_at_once() -> None:
    """S5: a question in flight is cancelled; nothing waits for it."""
    play(
        saga_of(step("reserve"), read("check"), timeout_s=10),
        """
        start
          call reserve action #1
        reserve OK
          reserve action SUCCEEDED
          call check action #1
        [10s] wake
          check action DROPPED
          saga COMPENSATING, TIMED_OUT of the saga
          cancel check action
          call reserve compensation #1
        check OK
          late answer dropped
        """,
    )


def test_timeout_behind_the_point_only_tells_a_person_once() -> None:
    """S6: the saga goes on forward."""
    saga = play(
        saga_of(retriable("capture"), timeout_s=10),
        """
        start
          point of no return passed
          call capture action #1
        [10s] wake
          dead letter: saga TIMED_OUT
        [12s] capture UNAVAILABLE
          capture action PARKED
          dead letter: capture action BUDGET_SPENT
        """,
    )
    assert saga.state is SagaState.RUNNING


def test_saga_that_begins_too_late_does_nothing() -> None:
    """S4: nothing was announced, so nothing is owed."""
    play(
        saga_of(step("reserve"), timeout_s=10),
        """
        [11s] start
          saga COMPENSATED, TIMED_OUT of the saga
        """,
    )


def test_action_never_outlasts_its_saga() -> None:
    """S10: before the point of no return an action's deadline is never later than its saga's; behind it, it may be."""
    first = decide(saga_of(step("reserve"), pivot("ship"), timeout_s=3), Started(at(0)))
    assert first.effects[0] == CallAction(StepName("reserve"), 1, at(3).now)
    second = decide(first.saga, AttemptEnded(at(1), StepName("reserve"), Direction.ACTION, 1, answer("OK")))
    assert second.effects[0] == CallAction(StepName("ship"), 1, at(6).now)


def test_undoing_has_its_full_time() -> None:
    """S10: a compensation has its own deadline, however late the saga is."""
    first = decide(saga_of(step("reserve"), step("pay"), timeout_s=3), Started(at(0)))
    second = decide(first.saga, AttemptEnded(at(1), StepName("reserve"), Direction.ACTION, 1, answer("OK")))
    third = decide(second.saga, AttemptEnded(at(4), StepName("pay"), Direction.ACTION, 1, answer("NOT_FOUND")))
    assert third.saga.failure is not None
    assert third.saga.failure.step == "pay"
    assert third.effects[0] == CallCompensation(StepName("reserve"), 1, at(9).now)


def test_overdue_call_is_looked_at_again_later() -> None:
    """L1: a call that outlasts its saga is waited for, some seconds at a time, and not looked at again at once."""
    saga = play(
        saga_of(step("reserve"), timeout_s=10),
        """
        start
          call reserve action #1
        [10s] wake
          saga COMPENSATING, TIMED_OUT of the saga
        """,
    )
    assert saga.due_time == 15 * SECOND
