"""Stories of steps side by side: siblings of a failure, aborts while calls are in flight, undoing branches."""

from __future__ import annotations

from amends_coordinator.core.saga import Saga
from amends_coordinator.core.states import FailurePolicy
from tests.unit.core.sagas import pivot, read, retry, saga_of, saga_with, step
from tests.unit.core.stories import play

QUICK = retry(total_s=2)


def pair() -> Saga:
    """Two steps side by side, then a pivot."""
    reserve, pay = (step(name, needs_response=False, budget=QUICK) for name in ("reserve", "pay"))
    return saga_with((reserve, pay, pivot("ship", after=("reserve", "pay"))))


def branches(policy: FailurePolicy) -> Saga:
    """A branch of two beside a branch of two, and a step that comes after both."""
    return saga_with(
        (
            step("order", budget=QUICK),
            step("reserve", after=("order",), budget=QUICK),
            step("book", budget=QUICK),
            step("seat", after=("book",), budget=QUICK),
            step("pay", after=("reserve", "seat")),
        ),
        policy=policy,
    )


def test_pivot_waits_for_both() -> None:
    """V15, S3: nothing goes on beside a pivot; it begins when everything before it is done."""
    play(
        pair(),
        """
        start
          call reserve action #1
          call pay action #1
        pay OK
          pay action SUCCEEDED
        reserve OK
          reserve action SUCCEEDED
          point of no return passed
          call ship action #1
        ship OK
          ship action SUCCEEDED
          saga COMMITTED
        """,
    )


def test_sibling_of_a_refusal_lands() -> None:
    """V8, S5: no compensation begins before what is in flight has landed."""
    saga = play(
        pair(),
        """
        start
          call reserve action #1
          call pay action #1
        pay FAILED_PRECONDITION
          pay action REJECTED
          saga COMPENSATING, FAILED_PRECONDITION of pay
        reserve OK
          reserve action SUCCEEDED
          call reserve compensation #1
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATED
        """,
    )
    assert not saga.unproven


def test_sibling_of_a_refusal_does_not_land() -> None:
    """V8, S4: after the grace it is cancelled, which is unknown: it may have happened."""
    saga = play(
        pair(),
        """
        start
          call reserve action #1
          call pay action #1
        [1s] pay FAILED_PRECONDITION
          pay action REJECTED
          saga COMPENSATING, FAILED_PRECONDITION of pay
        wake
          reserve action UNKNOWN
          cancel reserve action
          call reserve compensation #1
        reserve OK
          late answer dropped
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATED
          unproven
        """,
    )
    assert saga.unproven


def test_both_are_undone_side_by_side() -> None:
    """S5: what ran side by side is undone side by side."""
    play(
        pair(),
        """
        start
          call reserve action #1
          call pay action #1
        reserve OK
          reserve action SUCCEEDED
        pay OK
          pay action SUCCEEDED
          point of no return passed
          call ship action #1
        ship FAILED_PRECONDITION
          ship action REJECTED
          point of no return cleared
          saga COMPENSATING, FAILED_PRECONDITION of ship
          call pay compensation #1
          call reserve compensation #1
        pay compensation OK
          pay compensation SUCCEEDED
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATED
        """,
    )


def test_abort_while_both_are_in_flight() -> None:
    """V8, S10: accepted at once and carried out when they have landed; repeated it repeats the answer."""
    play(
        pair(),
        """
        start
          call reserve action #1
          call pay action #1
        abort
          accepted
        abort
          accepted, nothing changes
        wake
          saga COMPENSATING
        reserve OK
          reserve action SUCCEEDED
        pay FAILED_PRECONDITION
          pay action REJECTED
          call reserve compensation #1
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATED
        abort
          accepted, nothing changes
        """,
    )


def test_abort_waits_no_longer_than_the_grace() -> None:
    """S10, S4: then the lookup is asked."""
    play(
        saga_of(step("reserve", lookup=True)),
        """
        start
          call reserve action #1
        abort
          accepted
        wake
          saga COMPENSATING
        wake
          reserve action UNKNOWN
          cancel reserve action
          call reserve lookup #1
        reserve lookup NOT_FOUND sealed
          reserve lookup REJECTED
          reserve action REJECTED
          saga COMPENSATED
        """,
    )


def test_abort_before_the_pivot_is_announced() -> None:
    """V4, S10: an answer that would announce the pivot rolls back instead."""
    saga = play(
        saga_of(step("reserve"), pivot("ship")),
        """
        start
          call reserve action #1
        abort
          accepted
        reserve OK
          reserve action SUCCEEDED
          saga COMPENSATING
          call reserve compensation #1
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATED
        """,
    )
    assert not saga.point_of_no_return_passed


def test_abort_that_comes_too_late() -> None:
    """S10, S6: refused, and nothing is changed."""
    play(
        saga_of(pivot("ship")),
        """
        start
          point of no return passed
          call ship action #1
        abort
          refused: PAST_POINT_OF_NO_RETURN
        ship OK
          ship action SUCCEEDED
          saga COMMITTED
        abort
          refused: PAST_POINT_OF_NO_RETURN
        """,
    )


def test_abort_while_a_read_only_step_is_in_flight() -> None:
    """V23, S5: it is cancelled and dropped at once, and nothing waits for it."""
    saga = play(
        saga_with((step("reserve"), read("check"), pivot("ship", after=("reserve", "check")))),
        """
        start
          call reserve action #1
          call check action #1
        reserve OK
          reserve action SUCCEEDED
        abort
          accepted
        wake
          check action DROPPED
          saga COMPENSATING
          cancel check action
          call reserve compensation #1
        check OK
          late answer dropped
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATED
        """,
    )
    assert not saga.unproven


def test_abort_while_an_action_waits() -> None:
    """F10, S10: it is not called again; it may have happened."""
    saga = play(
        saga_of(step("reserve", needs_response=False, budget=retry(total_s=600, initial_s=120, maximum_s=120))),
        """
        start
          call reserve action #1
        reserve UNAVAILABLE
          reserve action waits until 61s
        [2s] abort
          accepted
        [2s] wake
          reserve action UNKNOWN
          saga COMPENSATING
          call reserve compensation #1
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATED
          unproven
        """,
    )
    assert saga.unproven


def test_halt_lets_branches_that_have_begun_go_on() -> None:
    """V9, S5: a parked compensation holds back the steps that its step depends on."""
    saga = play(
        branches(FailurePolicy.HALT),
        """
        start
          call order action #1
          call book action #1
        book OK
          book action SUCCEEDED
          call seat action #1
        order OK
          order action SUCCEEDED
          call reserve action #1
        seat OK
          seat action SUCCEEDED
        reserve OK
          reserve action SUCCEEDED
          call pay action #1
        pay FAILED_PRECONDITION
          pay action REJECTED
          saga COMPENSATING, FAILED_PRECONDITION of pay
          call seat compensation #1
          call reserve compensation #1
        [20s] seat compensation UNAVAILABLE
          seat compensation PARKED
          dead letter: seat compensation BUDGET_SPENT
        reserve compensation OK
          reserve compensation SUCCEEDED
          call order compensation #1
        order compensation OK
          order compensation SUCCEEDED
          saga COMPENSATION_FAILED
        """,
    )
    assert saga.compensations_owed == 2


def test_halt_lets_no_other_branch_begin() -> None:
    """V9, S5: until a person has settled what is parked."""
    saga = play(
        branches(FailurePolicy.HALT),
        """
        start
          call order action #1
          call book action #1
        book OK
          book action SUCCEEDED
          call seat action #1
        order OK
          order action SUCCEEDED
          call reserve action #1
        seat OK
          seat action SUCCEEDED
        [20s] reserve DEADLINE_EXCEEDED
          reserve action PARKED
          saga COMPENSATION_FAILED, OUTCOME_UNKNOWN of reserve
          dead letter: reserve action OUTCOME_UNKNOWN
        resolve reserve action DID_NOT_HAPPEN
          reserve action RESOLVED
          saga COMPENSATING
          dead letter closed: reserve action OUTCOME_UNKNOWN
        wake
          call seat compensation #1
          call order compensation #1
        seat compensation OK
          seat compensation SUCCEEDED
          call book compensation #1
        order compensation OK
          order compensation SUCCEEDED
        book compensation OK
          book compensation SUCCEEDED
          saga COMPENSATED
        """,
    )
    assert saga.compensations_owed == 0


def test_continue_lets_every_branch_begin() -> None:
    """V9, S5: what is parked holds back nothing, and is resolved while the others are undone."""
    saga = play(
        branches(FailurePolicy.CONTINUE),
        """
        start
          call order action #1
          call book action #1
        book OK
          book action SUCCEEDED
          call seat action #1
        order OK
          order action SUCCEEDED
          call reserve action #1
        seat OK
          seat action SUCCEEDED
        [20s] reserve DEADLINE_EXCEEDED
          reserve action PARKED
          saga COMPENSATING, OUTCOME_UNKNOWN of reserve
          dead letter: reserve action OUTCOME_UNKNOWN
          call seat compensation #1
          call order compensation #1
        seat compensation OK
          seat compensation SUCCEEDED
          call book compensation #1
        resolve reserve action DID_NOT_HAPPEN
          reserve action RESOLVED
          dead letter closed: reserve action OUTCOME_UNKNOWN
        order compensation OK
          order compensation SUCCEEDED
        book compensation OK
          book compensation SUCCEEDED
          saga COMPENSATED
        """,
    )
    assert saga.compensations_owed == 0


def test_keys_of_both_are_forgotten_at_once() -> None:
    """L1: what is given up with its sibling while the saga begins to roll back has one dead letter, not two."""
    saga = play(
        saga_with((step("book", window_s=30), step("pay", window_s=30)), timeout_s=1000),
        """
        start
          call book action #1
          call pay action #1
        book UNAVAILABLE
          book action waits until 2s
        [1.5s] pay UNAVAILABLE
          pay action waits until 2.5s
        [60s] adopt
          book action PARKED
          pay action PARKED
          saga COMPENSATION_FAILED, OUTCOME_UNKNOWN of book
          dead letter: book action OUTCOME_UNKNOWN
          dead letter: pay action OUTCOME_UNKNOWN
        """,
    )
    assert len(saga.dead_letters) == 2
