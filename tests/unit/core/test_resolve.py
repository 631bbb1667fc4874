"""Stories of dead letters that a named person resolves: every row of the table, and every refusal."""

from __future__ import annotations

from amends_coordinator.core.plan import StepPlan
from amends_coordinator.core.saga import Saga
from amends_coordinator.core.states import OnUnknown, Resolution
from tests.unit.core.sagas import pivot, retriable, retry, saga_of, step
from tests.unit.core.stories import PERSON, play

QUICK = retry(total_s=2)


def with_pivot() -> Saga:
    """A saga whose pivot's response is read later."""
    return saga_of(step("reserve"), pivot("ship", budget=QUICK, response_read=True), retriable("capture"))


def with_parking(*, response_read: bool = False) -> Saga:
    """A saga whose second step waits for a person when nobody knows what became of it."""
    return saga_of(step("order"), parking(response_read=response_read), step("pay"))


def parking(*, response_read: bool) -> StepPlan:
    """A compensatable step that is never guessed."""
    return step("reserve", on_unknown=OnUnknown.PARK, budget=QUICK, response_read=response_read)


def with_retriables() -> Saga:
    """A saga that can't go back."""
    budget = retry(refusals=1)
    return saga_of(retriable("capture", budget=budget), retriable("notify", budget=budget))


def test_pivot_happened() -> None:
    """S3, S6: its response has to be given where a later step reads it; then the saga goes forward."""
    saga = play(
        with_pivot(),
        """
        start
          call reserve action #1
        reserve OK
          reserve action SUCCEEDED
          point of no return passed
          call ship action #1
        [11s] ship UNAVAILABLE
          ship action PARKED
          dead letter: ship action OUTCOME_UNKNOWN
        resolve ship action HAPPENED
          refused: RESPONSE_REQUIRED
        resolve ship action HAPPENED response=done
          ship action RESOLVED
          dead letter closed: ship action OUTCOME_UNKNOWN
        wake
          call capture action #1
        capture OK
          capture action SUCCEEDED
          saga COMMITTED
        """,
    )
    ship = saga.intents[1]
    assert (ship.resolution, ship.resolved_by, ship.response) == (Resolution.HAPPENED, PERSON, b"done")


def test_pivot_did_not_happen() -> None:
    """S6: a named person's word clears the point of no return, and the saga rolls back."""
    saga = play(
        with_pivot(),
        """
        start
          call reserve action #1
        reserve OK
          reserve action SUCCEEDED
          point of no return passed
          call ship action #1
        [11s] ship UNAVAILABLE
          ship action PARKED
          dead letter: ship action OUTCOME_UNKNOWN
        resolve ship action DID_NOT_HAPPEN
          ship action RESOLVED
          point of no return cleared
          saga COMPENSATING, RESOLVED_DID_NOT_HAPPEN of ship
          dead letter closed: ship action OUTCOME_UNKNOWN
        wake
          call reserve compensation #1
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATED
        """,
    )
    assert saga.failure is not None
    assert saga.failure.message == "rosa found that it did not happen"


def test_pivot_is_not_undone_by_hand() -> None:
    """S6: nobody undoes a pivot."""
    play(
        with_pivot(),
        """
        start
          call reserve action #1
        reserve OK
          reserve action SUCCEEDED
          point of no return passed
          call ship action #1
        [11s] ship UNAVAILABLE
          ship action PARKED
          dead letter: ship action OUTCOME_UNKNOWN
        resolve ship action UNDONE_BY_HAND
          refused: RESOLUTION_REFUSED
        """,
    )


def test_running_and_it_happened() -> None:
    """S3: a compensatable step counts as succeeded, and what follows it begins."""
    play(
        with_parking(response_read=True),
        """
        start
          call order action #1
        order OK
          order action SUCCEEDED
          call reserve action #1
        [11s] reserve UNAVAILABLE
          reserve action PARKED
          dead letter: reserve action OUTCOME_UNKNOWN
        resolve reserve action HAPPENED
          refused: RESPONSE_REQUIRED
        resolve reserve action HAPPENED response=id
          reserve action RESOLVED
          dead letter closed: reserve action OUTCOME_UNKNOWN
        wake
          call pay action #1
        pay OK
          pay action SUCCEEDED
          point of no return passed
          saga COMMITTED
        """,
    )


def test_running_and_it_did_not_happen() -> None:
    """S4: it counts as rejected, and nothing is owed for it."""
    saga = play(
        with_parking(),
        """
        start
          call order action #1
        order OK
          order action SUCCEEDED
          call reserve action #1
        [11s] reserve UNAVAILABLE
          reserve action PARKED
          dead letter: reserve action OUTCOME_UNKNOWN
        resolve reserve action DID_NOT_HAPPEN
          reserve action RESOLVED
          saga COMPENSATING, RESOLVED_DID_NOT_HAPPEN of reserve
          dead letter closed: reserve action OUTCOME_UNKNOWN
        wake
          call order compensation #1
        order compensation OK
          order compensation SUCCEEDED
          saga COMPENSATED
        """,
    )
    assert not saga.unproven


def test_running_and_it_was_undone_by_hand() -> None:
    """S4: it happened and was undone; the saga rolls back the rest."""
    saga = play(
        with_parking(),
        """
        start
          call order action #1
        order OK
          order action SUCCEEDED
          call reserve action #1
        [11s] reserve UNAVAILABLE
          reserve action PARKED
          dead letter: reserve action OUTCOME_UNKNOWN
        resolve reserve action UNDONE_BY_HAND
          reserve action RESOLVED
          saga COMPENSATING, RESOLVED_UNDONE_BY_HAND of reserve
          dead letter closed: reserve action OUTCOME_UNKNOWN
        wake
          call order compensation #1
        order compensation OK
          order compensation SUCCEEDED
          saga COMPENSATED
        """,
    )
    assert saga.failure is not None
    assert saga.failure.message == "rosa found that it was undone by hand"


def test_rolling_back_and_it_happened() -> None:
    """V18, S4: it is compensated; the response that its compensation reads has to be given."""
    play(
        with_parking(),
        """
        start
          call order action #1
        order OK
          order action SUCCEEDED
          call reserve action #1
        [11s] reserve UNAVAILABLE
          reserve action PARKED
          dead letter: reserve action OUTCOME_UNKNOWN
        abort
          accepted
        wake
          saga COMPENSATING
          call order compensation #1
        order compensation OK
          order compensation SUCCEEDED
          saga COMPENSATION_FAILED
        resolve reserve action HAPPENED
          refused: RESPONSE_REQUIRED
        resolve reserve action HAPPENED response=id
          reserve action RESOLVED
          saga COMPENSATING
          dead letter closed: reserve action OUTCOME_UNKNOWN
        wake
          call reserve compensation #1
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATED
        """,
    )


def test_rolling_back_and_it_did_not_happen() -> None:
    """S4: nothing is owed."""
    play(
        with_parking(),
        """
        start
          call order action #1
        order OK
          order action SUCCEEDED
          call reserve action #1
        [11s] reserve UNAVAILABLE
          reserve action PARKED
          dead letter: reserve action OUTCOME_UNKNOWN
        abort
          accepted
        wake
          saga COMPENSATING
          call order compensation #1
        order compensation OK
          order compensation SUCCEEDED
          saga COMPENSATION_FAILED
        resolve reserve action DID_NOT_HAPPEN
          reserve action RESOLVED
          saga COMPENSATING
          dead letter closed: reserve action OUTCOME_UNKNOWN
        wake
          saga COMPENSATED
        """,
    )


def test_rolling_back_and_it_was_undone_by_hand() -> None:
    """S4: nothing is owed any more."""
    play(
        with_parking(),
        """
        start
          call order action #1
        order OK
          order action SUCCEEDED
          call reserve action #1
        [11s] reserve UNAVAILABLE
          reserve action PARKED
          dead letter: reserve action OUTCOME_UNKNOWN
        abort
          accepted
        wake
          saga COMPENSATING
          call order compensation #1
        order compensation OK
          order compensation SUCCEEDED
          saga COMPENSATION_FAILED
        resolve reserve action UNDONE_BY_HAND
          reserve action RESOLVED
          saga COMPENSATING
          dead letter closed: reserve action OUTCOME_UNKNOWN
        wake
          saga COMPENSATED
        """,
    )


def test_retriable_happened() -> None:
    """S3: the saga goes on as if it had been answered."""
    play(
        with_retriables(),
        """
        start
          point of no return passed
          call capture action #1
        capture FAILED_PRECONDITION
          capture action PARKED
          dead letter: capture action REFUSED
        resolve capture action HAPPENED
          capture action RESOLVED
          dead letter closed: capture action REFUSED
        wake
          call notify action #1
        notify OK
          notify action SUCCEEDED
          saga COMMITTED
        """,
    )


def test_waived_retriable() -> None:
    """V14, S3: a named person waives it, and the saga commits with that name."""
    saga = play(
        with_retriables(),
        """
        start
          point of no return passed
          call capture action #1
        capture FAILED_PRECONDITION
          capture action PARKED
          dead letter: capture action REFUSED
        resolve capture action DID_NOT_HAPPEN
          capture action RESOLVED
          dead letter closed: capture action REFUSED
        wake
          call notify action #1
        notify OK
          notify action SUCCEEDED
          saga COMMITTED
        """,
    )
    assert saga.intents[0].resolved_by == PERSON


def test_retriable_is_not_undone_by_hand() -> None:
    """S6: behind the point of no return nothing is undone."""
    play(
        with_retriables(),
        """
        start
          point of no return passed
          call capture action #1
        capture FAILED_PRECONDITION
          capture action PARKED
          dead letter: capture action REFUSED
        resolve capture action UNDONE_BY_HAND
          refused: RESOLUTION_REFUSED
        """,
    )
