"""Stories of what a named person resolves about compensations, and of dead letters that only tell something."""

from __future__ import annotations

from amends_coordinator.core.saga import Saga
from tests.unit.core.sagas import pivot, retriable, retry, saga_of, step
from tests.unit.core.stories import play

QUICK = retry(total_s=2)


def two_steps() -> Saga:
    """A saga of which the first step is undone."""
    return saga_of(step("reserve", budget=QUICK), step("pay", budget=QUICK))


def test_compensation_happened() -> None:
    """S4: the compensation itself happened, so nothing is owed."""
    play(
        two_steps(),
        """
        start
          call reserve action #1
        reserve OK
          reserve action SUCCEEDED
          call pay action #1
        pay FAILED_PRECONDITION
          pay action REJECTED
          saga COMPENSATING, FAILED_PRECONDITION of pay
          call reserve compensation #1
        [20s] reserve compensation UNAVAILABLE
          reserve compensation PARKED
          saga COMPENSATION_FAILED
          dead letter: reserve compensation BUDGET_SPENT
        resolve reserve compensation HAPPENED
          reserve compensation RESOLVED
          saga COMPENSATING
          dead letter closed: reserve compensation BUDGET_SPENT
        wake
          saga COMPENSATED
        """,
    )


def test_compensation_that_did_not_happen_is_still_owed() -> None:
    """V18, S4: that it did not happen settles nothing; retry it, or undo it by hand."""
    saga = play(
        two_steps(),
        """
        start
          call reserve action #1
        reserve OK
          reserve action SUCCEEDED
          call pay action #1
        pay FAILED_PRECONDITION
          pay action REJECTED
          saga COMPENSATING, FAILED_PRECONDITION of pay
          call reserve compensation #1
        [20s] reserve compensation UNAVAILABLE
          reserve compensation PARKED
          saga COMPENSATION_FAILED
          dead letter: reserve compensation BUDGET_SPENT
        resolve reserve compensation DID_NOT_HAPPEN
          refused: RESOLUTION_REFUSED
        """,
    )
    assert saga.compensations_owed == 1


def test_step_undone_by_hand() -> None:
    """S4: a person has undone it, or found nothing to undo."""
    saga = play(
        two_steps(),
        """
        start
          call reserve action #1
        reserve OK
          reserve action SUCCEEDED
          call pay action #1
        pay FAILED_PRECONDITION
          pay action REJECTED
          saga COMPENSATING, FAILED_PRECONDITION of pay
          call reserve compensation #1
        [20s] reserve compensation UNAVAILABLE
          reserve compensation PARKED
          saga COMPENSATION_FAILED
          dead letter: reserve compensation BUDGET_SPENT
        resolve reserve compensation UNDONE_BY_HAND
          reserve compensation RESOLVED
          saga COMPENSATING
          dead letter closed: reserve compensation BUDGET_SPENT
        wake
          saga COMPENSATED
        """,
    )
    assert saga.compensations_owed == 0


def test_second_person_is_too_late() -> None:
    """V19, S8: of two who act on one dead letter the second is told that it is closed."""
    play(
        two_steps(),
        """
        start
          call reserve action #1
        reserve OK
          reserve action SUCCEEDED
          call pay action #1
        pay FAILED_PRECONDITION
          pay action REJECTED
          saga COMPENSATING, FAILED_PRECONDITION of pay
          call reserve compensation #1
        [20s] reserve compensation UNAVAILABLE
          reserve compensation PARKED
          saga COMPENSATION_FAILED
          dead letter: reserve compensation BUDGET_SPENT
        retry reserve compensation
          reserve compensation PENDING
          saga COMPENSATING
          dead letter closed: reserve compensation BUDGET_SPENT
        resolve reserve compensation UNDONE_BY_HAND
          refused: LETTER_CLOSED
        wake
          call reserve compensation #2
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATED
        """,
    )


def test_step_after_the_compensation_is_waived() -> None:
    """S8: its dead letter doesn't change the state of the saga."""
    saga = play(
        saga_of(step("reserve"), on_compensated=(retriable("apologise", budget=QUICK),)),
        """
        start
          call reserve action #1
        reserve FAILED_PRECONDITION
          reserve action REJECTED
          saga COMPENSATED, FAILED_PRECONDITION of reserve
          call apologise action #1
        [6s] apologise UNAVAILABLE
          apologise action PARKED
          dead letter: apologise action BUDGET_SPENT
        resolve apologise action UNDONE_BY_HAND
          refused: RESOLUTION_REFUSED
        resolve apologise action DID_NOT_HAPPEN
          apologise action RESOLVED
          dead letter closed: apologise action BUDGET_SPENT
        wake
        """,
    )
    assert saga.due_time is None


def test_abort_that_comes_too_late_only_tells() -> None:
    """V7, S6: a pivot that asks for an abort has happened; resolving that dead letter only closes it."""
    saga = play(
        saga_of(pivot("ship"), retriable("capture")),
        """
        start
          point of no return passed
          call ship action #1
        ship OK abort=fraud
          ship action SUCCEEDED
          dead letter: ship action ABORT_TOO_LATE
          call capture action #1
        retry ship action
          refused: NOTHING_TO_REPEAT
        resolve ship action HAPPENED
          dead letter closed: ship action ABORT_TOO_LATE
        resolve ship action HAPPENED
          refused: LETTER_CLOSED
        wake
        capture OK
          capture action SUCCEEDED
          saga COMMITTED
        """,
    )
    assert not saga.attention_required


def test_there_is_no_such_dead_letter() -> None:
    """L2: nothing is changed."""
    play(
        two_steps(),
        """
        start
          call reserve action #1
        retry reserve action
          refused: LETTER_NOT_FOUND
        resolve reserve action HAPPENED
          refused: LETTER_NOT_FOUND
        """,
    )


def test_the_coordinator_fails_on_the_saga() -> None:
    """S12, L1: a person is told once; retried it is taken up again, and there is nothing to resolve."""
    saga = play(
        saga_of(step("reserve"), pivot("ship")),
        """
        start
          call reserve action #1
        driver fails
          dead letter: saga DRIVER_FAILED
        driver fails
          nothing
        resolve saga HAPPENED
          refused: RESOLUTION_REFUSED
        retry saga
          dead letter closed: saga DRIVER_FAILED
        reserve OK
          reserve action SUCCEEDED
          point of no return passed
          call ship action #1
        driver fails
          dead letter: saga DRIVER_FAILED
        ship OK
          ship action SUCCEEDED
          saga COMMITTED
        retry saga
          dead letter closed: saga DRIVER_FAILED
        """,
    )
    assert saga.state.ended
    assert not saga.attention_required


def test_timeout_behind_the_point_only_tells() -> None:
    """S6: a saga that is late goes on; resolving that dead letter only closes it, and it isn't opened again."""
    saga = play(
        saga_of(pivot("ship", budget=retry(total_s=99)), timeout_s=20),
        """
        start
          point of no return passed
          call ship action #1
        ship not sent
          ship action waits until 2s
        [21s] wake
          dead letter: saga TIMED_OUT
          call ship action #2
        retry saga
          refused: NOTHING_TO_REPEAT
        resolve saga HAPPENED
          dead letter closed: saga TIMED_OUT
        wake
        ship OK
          ship action SUCCEEDED
          saga COMMITTED
        """,
    )
    assert not saga.attention_required
