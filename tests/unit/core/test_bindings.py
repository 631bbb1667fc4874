"""Stories of requests that can't be built: what was never sent did not happen."""

from __future__ import annotations

from amends_coordinator.core.states import IntentState
from tests.unit.core.sagas import pivot, retriable, retry, saga_of, step
from tests.unit.core.stories import play


def test_requests_that_cannot_be_built() -> None:
    """S1, S4: an action whose request can't be built never happened; a compensation like that needs a person."""
    saga = play(
        saga_of(step("order"), step("reserve")),
        """
        start
          call order action #1
        order OK
          order action SUCCEEDED
          call reserve action #1
        binding of reserve action fails
          reserve action REJECTED
          saga COMPENSATING, BINDING_FAILED of reserve
          call order compensation #1
        binding of order compensation fails
          order compensation PARKED
          saga COMPENSATION_FAILED
          dead letter: order compensation REFUSED
        """,
    )
    assert [intent.attempt for intent in saga.intents] == [1, 0, 0]
    assert saga.intents[1].attempts == ()
    assert {intent.last_error for intent in saga.intents[1:]} == {"the request can't be built: no such field"}
    assert [letter.last_error for letter in saga.dead_letters] == ["the request can't be built: no such field"]


def test_lookup_that_cannot_be_built_proves_nothing() -> None:
    """S4: it is as if it had answered an unsealed NOT_FOUND."""
    play(
        saga_of(step("reserve", lookup=True, needs_response=False, budget=retry(total_s=2))),
        """
        start
          call reserve action #1
        reserve UNAVAILABLE
          reserve action UNKNOWN
          call reserve lookup #1
        binding of reserve lookup fails
          reserve lookup UNKNOWN
          saga COMPENSATING, OUTCOME_UNKNOWN of reserve
          call reserve compensation #1
        """,
    )


def test_requests_behind_the_point_that_cannot_be_built() -> None:
    """S6: a pivot that was never sent clears the point again; a retriable step parks."""
    play(
        saga_of(step("reserve"), pivot("ship")),
        """
        start
          call reserve action #1
        reserve OK
          reserve action SUCCEEDED
          point of no return passed
          call ship action #1
        binding of ship action fails
          ship action REJECTED
          point of no return cleared
          saga COMPENSATING, BINDING_FAILED of ship
          call reserve compensation #1
        """,
    )
    saga = play(
        saga_of(retriable("capture")),
        """
        start
          point of no return passed
          call capture action #1
        binding of capture action fails
          capture action PARKED
          dead letter: capture action REFUSED
        """,
    )
    assert saga.intents[0].state is IntentState.PARKED
