"""Stories of sagas that a person terminates: from then on only what a person retries is called."""

from __future__ import annotations

from amends_coordinator.core.saga import Saga
from tests.unit.core.sagas import pivot, read, retriable, retry, saga_of, step
from tests.unit.core.stories import play


def three_steps() -> Saga:
    """A saga that can be rolled back."""
    return saga_of(step("order"), step("reserve", lookup=True), step("pay"))


def test_before_the_point() -> None:
    """V20, S5: what is owed and what is unsettled waits for a person, and is retried newest first."""
    play(
        three_steps(),
        """
        start
          call order action #1
        order OK
          order action SUCCEEDED
          call reserve action #1
        terminate
          reserve action PARKED
          saga COMPENSATION_FAILED, TERMINATED of the saga
          dead letter: order compensation TERMINATED
          dead letter: reserve action TERMINATED
        [9s] wake
        reserve OK
          late answer dropped
        retry order compensation
          refused: OUT_OF_ORDER
        resolve reserve action DID_NOT_HAPPEN
          reserve action RESOLVED
          saga COMPENSATING
          dead letter closed: reserve action TERMINATED
        retry order compensation
          order compensation PENDING
          dead letter closed: order compensation TERMINATED
        wake
          call order compensation #1
        order compensation OK
          order compensation SUCCEEDED
          saga COMPENSATED
        terminate
          refused: SAGA_ENDED
        """,
    )


def test_while_it_rolls_back() -> None:
    """V20, S5: a compensation in flight is unknown now, the older one is not announced."""
    play(
        three_steps(),
        """
        start
          call order action #1
        order OK
          order action SUCCEEDED
          call reserve action #1
        reserve OK
          reserve action SUCCEEDED
          call pay action #1
        pay FAILED_PRECONDITION
          pay action REJECTED
          saga COMPENSATING, FAILED_PRECONDITION of pay
          call reserve compensation #1
        terminate
          reserve compensation PARKED
          saga COMPENSATION_FAILED
          dead letter: order compensation TERMINATED
          dead letter: reserve compensation TERMINATED
        wake
        retry order compensation
          refused: OUT_OF_ORDER
        retry reserve compensation
          reserve compensation PENDING
          saga COMPENSATING
          dead letter closed: reserve compensation TERMINATED
        wake
          call reserve compensation #2
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATION_FAILED
        retry order compensation
          order compensation PENDING
          saga COMPENSATING
          dead letter closed: order compensation TERMINATED
        wake
          call order compensation #1
        order compensation OK
          order compensation SUCCEEDED
          saga COMPENSATED
        """,
    )


def test_while_a_lookup_is_asked() -> None:
    """S4: the action stays unknown and waits for a person, who has it asked again."""
    play(
        saga_of(step("reserve", lookup=True, budget=retry(total_s=2))),
        """
        start
          call reserve action #1
        [5s] reserve UNAVAILABLE
          reserve action UNKNOWN
          call reserve lookup #1
        terminate
          reserve lookup UNKNOWN
          reserve action PARKED
          saga COMPENSATION_FAILED, TERMINATED of the saga
          dead letter: reserve action TERMINATED
        reserve lookup OK
          late answer dropped
        retry reserve action
          reserve action UNKNOWN
          reserve lookup PENDING
          saga COMPENSATING
          dead letter closed: reserve action TERMINATED
        wake
          call reserve lookup #2
        reserve lookup NOT_FOUND sealed
          reserve lookup REJECTED
          reserve action REJECTED
          saga COMPENSATED
        """,
    )


def test_nothing_owed() -> None:
    """S4: what never began and what only read is dropped, and nothing is owed."""
    play(
        saga_of(read("check"), step("order")),
        """
        start
          call check action #1
        check OK
          check action SUCCEEDED
          call order action #1
        order not sent
          order action waits until 3s
        terminate
          order action DROPPED
          saga COMPENSATED, TERMINATED of the saga
        wake
        """,
    )


def test_read_only_in_flight() -> None:
    """S4: there is nothing to undo of it."""
    play(
        saga_of(read("check"), step("order")),
        """
        start
          call check action #1
        terminate
          check action DROPPED
          saga COMPENSATED, TERMINATED of the saga
        check OK
          late answer dropped
        """,
    )


def test_after_the_point() -> None:
    """V20, S6: past the point of no return it stays running, and what a person retries goes forward in order."""
    play(
        saga_of(pivot("ship"), retriable("capture"), retriable("notify")),
        """
        start
          point of no return passed
          call ship action #1
        ship OK
          ship action SUCCEEDED
          call capture action #1
        terminate
          capture action PARKED
          dead letter: capture action TERMINATED
          dead letter: notify action TERMINATED
        wake
        retry notify action
          refused: OUT_OF_ORDER
        retry capture action
          capture action PENDING
          dead letter closed: capture action TERMINATED
        wake
          call capture action #2
        capture OK
          capture action SUCCEEDED
        retry notify action
          notify action PENDING
          dead letter closed: notify action TERMINATED
        wake
          call notify action #1
        notify OK
          notify action SUCCEEDED
          saga COMMITTED
        """,
    )


def test_what_lies_between_is_waived_first() -> None:
    """V20, S6: a step isn't called because the one just before it is settled: the pivot may still be refused."""
    play(
        saga_of(pivot("ship"), retriable("capture"), retriable("notify")),
        """
        start
          point of no return passed
          call ship action #1
        terminate
          ship action PARKED
          dead letter: ship action TERMINATED
          dead letter: capture action TERMINATED
          dead letter: notify action TERMINATED
        resolve capture action DID_NOT_HAPPEN
          capture action RESOLVED
          dead letter closed: capture action TERMINATED
        retry notify action
          refused: OUT_OF_ORDER
        resolve ship action DID_NOT_HAPPEN
          ship action RESOLVED
          notify action DROPPED
          point of no return cleared
          saga COMPENSATING, RESOLVED_DID_NOT_HAPPEN of ship
          dead letter closed: ship action TERMINATED
          dead letter closed: notify action TERMINATED
        """,
    )


def test_while_the_pivot_is_asked_about() -> None:
    """S6: an unknown pivot waits for a person."""
    play(
        saga_of(pivot("ship", lookup=True, budget=retry(total_s=2))),
        """
        start
          point of no return passed
          call ship action #1
        [5s] ship UNAVAILABLE
          ship action UNKNOWN
          call ship lookup #1
        terminate
          ship lookup UNKNOWN
          ship action PARKED
          dead letter: ship action TERMINATED
        ship lookup OK
          late answer dropped
        resolve ship action HAPPENED
          ship action RESOLVED
          dead letter closed: ship action TERMINATED
        wake
          saga COMMITTED
        """,
    )


def test_terminated_saga_is_not_told_twice() -> None:
    """S8: what is parked already keeps its dead letter."""
    play(
        saga_of(step("reserve", budget=retry(total_s=2)), step("pay")),
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
        terminate
        run now
        wake
        """,
    )
