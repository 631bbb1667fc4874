"""Stories of retries, of lookups that are asked before a person is believed, and of running now."""

from __future__ import annotations

from tests.unit.core.sagas import pivot, retriable, retry, saga_of, step
from tests.unit.core.stories import play

QUICK = retry(total_s=2)
SEALING = pivot("ship", lookup=True, lookup_seals=True, budget=QUICK)


def test_pivot_is_called_again() -> None:
    """S2, S6: with the same key and a fresh budget."""
    play(
        saga_of(step("reserve"), pivot("ship", budget=QUICK)),
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
        retry ship action
          ship action PENDING
          dead letter closed: ship action OUTCOME_UNKNOWN
        wake
          call ship action #2
        ship OK
          ship action SUCCEEDED
          saga COMMITTED
        """,
    )


def test_action_is_never_repeated_while_the_saga_rolls_back() -> None:
    """S6: only its lookup could be asked, and there is none."""
    play(
        saga_of(step("reserve", budget=QUICK)),
        """
        start
          call reserve action #1
        [11s] reserve UNAVAILABLE
          reserve action PARKED
          saga COMPENSATION_FAILED, OUTCOME_UNKNOWN of reserve
          dead letter: reserve action OUTCOME_UNKNOWN
        retry reserve action
          refused: NOTHING_TO_REPEAT
        """,
    )


def test_lookup_is_asked_again_while_the_saga_rolls_back() -> None:
    """S4: what it finds is undone."""
    play(
        saga_of(step("reserve", lookup=True, budget=QUICK)),
        """
        start
          call reserve action #1
        [11s] reserve UNAVAILABLE
          reserve action UNKNOWN
          call reserve lookup #1
        [20s] reserve lookup UNAVAILABLE
          reserve lookup UNKNOWN
          reserve action PARKED
          saga COMPENSATION_FAILED, OUTCOME_UNKNOWN of reserve
          dead letter: reserve action OUTCOME_UNKNOWN
        retry reserve action
          reserve action UNKNOWN
          reserve lookup PENDING
          saga COMPENSATING
          dead letter closed: reserve action OUTCOME_UNKNOWN
        wake
          call reserve lookup #2
        reserve lookup OK
          reserve lookup SUCCEEDED
          reserve action SUCCEEDED
          call reserve compensation #1
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATED
        """,
    )


def test_at_most_once_is_never_repeated() -> None:
    """S12: what was to run at most once and may have run isn't called again by anybody."""
    play(
        saga_of(pivot("ship", at_most_once=True)),
        """
        start
          point of no return passed
          call ship action #1
        ship UNAVAILABLE
          ship action PARKED
          dead letter: ship action OUTCOME_UNKNOWN
        retry ship action
          refused: NOTHING_TO_REPEAT
        """,
    )


def test_at_most_once_is_looked_up() -> None:
    """S12: but asked about."""
    play(
        saga_of(pivot("ship", at_most_once=True, lookup=True, budget=QUICK)),
        """
        start
          point of no return passed
          call ship action #1
        [5s] ship UNAVAILABLE
          ship action UNKNOWN
          call ship lookup #1
        [9s] ship lookup UNAVAILABLE
          ship lookup UNKNOWN
          ship action PARKED
          dead letter: ship action OUTCOME_UNKNOWN
        retry ship action
          ship action UNKNOWN
          ship lookup PENDING
          dead letter closed: ship action OUTCOME_UNKNOWN
        wake
          call ship lookup #2
        ship lookup OK
          ship lookup SUCCEEDED
          ship action SUCCEEDED
          saga COMMITTED
        """,
    )


def test_forgotten_key_is_not_repeated() -> None:
    """V12, S2: once the participant may have forgotten the key, only by force, and then unproven."""
    saga = play(
        saga_of(retriable("capture", window_s=20, budget=QUICK), timeout_s=1000),
        """
        start
          point of no return passed
          call capture action #1
        [5s] capture UNAVAILABLE
          capture action PARKED
          dead letter: capture action BUDGET_SPENT
        [100s] retry capture action
          refused: KEY_EXPIRED
        retry capture action forced
          capture action PENDING
          unproven
          dead letter closed: capture action BUDGET_SPENT
        wake
          call capture action #2
        capture OK
          capture action SUCCEEDED
          saga COMMITTED
        """,
    )
    assert saga.unproven


def test_forgotten_key_of_a_compensation() -> None:
    """V12, S2: the same for a compensation."""
    saga = play(
        saga_of(step("reserve", window_s=20, budget=QUICK), step("pay")),
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
        [7s] reserve compensation UNAVAILABLE
          reserve compensation PARKED
          saga COMPENSATION_FAILED
          dead letter: reserve compensation BUDGET_SPENT
        [100s] retry reserve compensation
          refused: KEY_EXPIRED
        retry reserve compensation forced
          reserve compensation PENDING
          saga COMPENSATING
          unproven
          dead letter closed: reserve compensation BUDGET_SPENT
        wake
          call reserve compensation #2
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATED
        """,
    )
    assert saga.unproven


def test_forgotten_key_that_waited() -> None:
    """S2: what waited until the key may be forgotten is given up, not repeated."""
    play(
        saga_of(step("reserve", window_s=4, needs_response=False, budget=retry(total_s=99))),
        """
        start
          call reserve action #1
        [3s] reserve UNAVAILABLE
          reserve action waits until 4s
        wake
          call reserve action #2
        [5s] reserve UNAVAILABLE
          reserve action UNKNOWN
          saga COMPENSATING, OUTCOME_UNKNOWN of reserve
          call reserve compensation #1
        """,
    )


def test_compensations_are_retried_newest_first() -> None:
    """V20, S5: an older one only after those that depend on its step are settled."""
    play(
        saga_of(step("order", budget=QUICK), step("reserve", budget=QUICK), step("pay")),
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
        [20s] reserve compensation UNAVAILABLE
          reserve compensation PARKED
          dead letter: reserve compensation BUDGET_SPENT
          call order compensation #1
        [30s] order compensation UNAVAILABLE
          order compensation PARKED
          saga COMPENSATION_FAILED
          dead letter: order compensation BUDGET_SPENT
        retry order compensation
          refused: OUT_OF_ORDER
        retry reserve compensation
          reserve compensation PENDING
          saga COMPENSATING
          dead letter closed: reserve compensation BUDGET_SPENT
        wake
          call reserve compensation #2
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATION_FAILED
        retry order compensation
          order compensation PENDING
          saga COMPENSATING
          dead letter closed: order compensation BUDGET_SPENT
        wake
          call order compensation #2
        order compensation OK
          order compensation SUCCEEDED
          saga COMPENSATED
        """,
    )


def test_lookup_seals_before_a_person_is_believed() -> None:
    """S6: asked first, it says that the action never will run; the person's word isn't needed."""
    saga = play(
        saga_of(SEALING),
        """
        start
          point of no return passed
          call ship action #1
        [5s] ship UNAVAILABLE
          ship action UNKNOWN
          call ship lookup #1
        [9s] ship lookup UNAVAILABLE
          ship lookup UNKNOWN
          ship action PARKED
          dead letter: ship action OUTCOME_UNKNOWN
        ask ship action
          ship lookup PENDING
        wake
          call ship lookup #2
        ship lookup NOT_FOUND sealed
          ship lookup REJECTED
          ship action REJECTED
          point of no return cleared
          saga COMPENSATED, NOT_FOUND of ship
          dead letter closed: ship action OUTCOME_UNKNOWN
        resolve ship action HAPPENED
          refused: LETTER_CLOSED
        """,
    )
    assert not saga.attention_required


def test_lookup_contradicts_a_person() -> None:
    """S3, S8: it says that the action happened, and closes the dead letter by itself."""
    play(
        saga_of(SEALING),
        """
        start
          point of no return passed
          call ship action #1
        [5s] ship UNAVAILABLE
          ship action UNKNOWN
          call ship lookup #1
        [9s] ship lookup UNAVAILABLE
          ship lookup UNKNOWN
          ship action PARKED
          dead letter: ship action OUTCOME_UNKNOWN
        ask ship action
          ship lookup PENDING
        wake
          call ship lookup #2
        ship lookup OK
          ship lookup SUCCEEDED
          ship action SUCCEEDED
          saga COMMITTED
          dead letter closed: ship action OUTCOME_UNKNOWN
        resolve ship action DID_NOT_HAPPEN
          refused: LETTER_CLOSED
        """,
    )


def test_lookup_is_asked_only_once_for_a_person() -> None:
    """L1: silence doesn't keep a person waiting."""
    play(
        saga_of(SEALING),
        """
        start
          point of no return passed
          call ship action #1
        [5s] ship UNAVAILABLE
          ship action UNKNOWN
          call ship lookup #1
        [9s] ship lookup UNAVAILABLE
          ship lookup UNKNOWN
          ship action PARKED
          dead letter: ship action OUTCOME_UNKNOWN
        ask ship action
          ship lookup PENDING
        wake
          call ship lookup #2
        ship lookup UNAVAILABLE
          ship lookup UNKNOWN
        resolve ship action HAPPENED response=id
          ship action RESOLVED
          dead letter closed: ship action OUTCOME_UNKNOWN
        wake
          saga COMMITTED
        """,
    )


def test_retry_while_the_lookup_is_asked() -> None:
    """S2: the lookup isn't waited for any more, and its answer decides nothing."""
    play(
        saga_of(SEALING),
        """
        start
          point of no return passed
          call ship action #1
        [5s] ship UNAVAILABLE
          ship action UNKNOWN
          call ship lookup #1
        [9s] ship lookup UNAVAILABLE
          ship lookup UNKNOWN
          ship action PARKED
          dead letter: ship action OUTCOME_UNKNOWN
        ask ship action
          ship lookup PENDING
        wake
          call ship lookup #2
        retry ship action
          ship lookup UNKNOWN
          ship action PENDING
          dead letter closed: ship action OUTCOME_UNKNOWN
        wake
          call ship action #2
        ship lookup NOT_FOUND sealed
          late answer dropped
        ship OK
          ship action SUCCEEDED
          saga COMMITTED
        """,
    )


def test_lookup_that_is_in_flight_is_not_called_twice() -> None:
    """S2: two people have it asked; one call serves both."""
    play(
        saga_of(SEALING),
        """
        start
          point of no return passed
          call ship action #1
        [5s] ship UNAVAILABLE
          ship action UNKNOWN
          call ship lookup #1
        [9s] ship lookup UNAVAILABLE
          ship lookup UNKNOWN
          ship action PARKED
          dead letter: ship action OUTCOME_UNKNOWN
        ask ship action
          ship lookup PENDING
        wake
          call ship lookup #2
        ask ship action
        wake
        ship lookup OK
          ship lookup SUCCEEDED
          ship action SUCCEEDED
          saga COMMITTED
          dead letter closed: ship action OUTCOME_UNKNOWN
        """,
    )


def test_lookup_of_a_retriable_step_settles_nothing() -> None:
    """S6: it never seals, so it isn't asked before a person is believed."""
    play(
        saga_of(retriable("capture", lookup=True, budget=QUICK)),
        """
        start
          point of no return passed
          call capture action #1
        [5s] capture UNAVAILABLE
          capture action PARKED
          dead letter: capture action BUDGET_SPENT
        [9s] capture lookup UNAVAILABLE
          late answer dropped
        ask capture action
          refused: NOTHING_TO_REPEAT
        """,
    )


def test_resolved_while_the_lookup_is_asked() -> None:
    """S8: the lookup isn't wanted any more, and its answer decides nothing."""
    play(
        saga_of(SEALING),
        """
        start
          point of no return passed
          call ship action #1
        [5s] ship UNAVAILABLE
          ship action UNKNOWN
          call ship lookup #1
        [9s] ship lookup UNAVAILABLE
          ship lookup UNKNOWN
          ship action PARKED
          dead letter: ship action OUTCOME_UNKNOWN
        ask ship action
          ship lookup PENDING
        wake
          call ship lookup #2
        resolve ship action HAPPENED response=id
          ship lookup DROPPED
          ship action RESOLVED
          dead letter closed: ship action OUTCOME_UNKNOWN
        ship lookup NOT_FOUND sealed
          late answer dropped
        wake
          saga COMMITTED
        """,
    )


def test_run_now() -> None:
    """L1: what waits is tried now; of an ended saga nothing is left to try."""
    play(
        saga_of(step("reserve")),
        """
        start
          call reserve action #1
        reserve UNAVAILABLE
          reserve action waits until 2s
        [1.5s] run now
        [1.5s] wake
          call reserve action #2
        reserve OK
          reserve action SUCCEEDED
          point of no return passed
          saga COMMITTED
        run now
          refused: SAGA_ENDED
        """,
    )
