"""Stories of how an unknown action is settled: code sets, late lookups, at most once, steps after the compensation."""

from __future__ import annotations

from amends_coordinator.core.states import OnUnknown
from tests.unit.core.sagas import retriable, retry, saga_of, step
from tests.unit.core.stories import play

QUICK = retry(total_s=2)
DONE_BEFORE = ("ALREADY_EXISTS",)


def test_late_lookup_is_believed() -> None:
    """S4: a lookup that began later than anything could be on its way is taken as proof, and marked."""
    saga = play(
        saga_of(step("reserve", lookup=True, settle_delay_s=10, budget=QUICK)),
        """
        start
          call reserve action #1
        [5s] reserve DEADLINE_EXCEEDED
          reserve action UNKNOWN
          call reserve lookup #1
        reserve lookup NOT_FOUND
          reserve lookup waits until 15s
        wake
          call reserve lookup #2
        reserve lookup NOT_FOUND
          reserve lookup REJECTED
          reserve action REJECTED
          saga COMPENSATED, NOT_FOUND of reserve
          unproven
        """,
    )
    assert saga.unproven


def test_late_lookup_finds_it() -> None:
    """S4: what arrived in between is undone."""
    saga = play(
        saga_of(step("reserve", lookup=True, settle_delay_s=10, budget=QUICK), step("pay")),
        """
        start
          call reserve action #1
        [5s] reserve DEADLINE_EXCEEDED
          reserve action UNKNOWN
          call reserve lookup #1
        reserve lookup NOT_FOUND
          reserve lookup waits until 15s
        wake
          call reserve lookup #2
        reserve lookup OK
          reserve lookup SUCCEEDED
          reserve action SUCCEEDED
          call pay action #1
        """,
    )
    assert not saga.unproven


def test_lookup_is_not_believed_after_the_window() -> None:
    """S4: by then the participant may have forgotten the key, so asking later proves nothing."""
    play(
        saga_of(step("reserve", lookup=True, settle_delay_s=10, window_s=12, needs_response=False, budget=QUICK)),
        """
        start
          call reserve action #1
        [5s] reserve DEADLINE_EXCEEDED
          reserve action UNKNOWN
          call reserve lookup #1
        reserve lookup NOT_FOUND
          reserve lookup REJECTED
          saga COMPENSATING, OUTCOME_UNKNOWN of reserve
          call reserve compensation #1
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATED
          unproven
        """,
    )


def test_codes_that_are_a_clear_no() -> None:
    """S4: a method may add codes; here also one that is sealed."""
    saga = play(
        saga_of(step("reserve"), step("pay", rejected_codes=("RESOURCE_EXHAUSTED",))),
        """
        start
          call reserve action #1
        reserve OK
          reserve action SUCCEEDED
          call pay action #1
        pay UNAVAILABLE
          pay action waits until 3s
        wake
          call pay action #2
        pay RESOURCE_EXHAUSTED
          pay action waits until 6s
        wake
          call pay action #3
        pay RESOURCE_EXHAUSTED sealed
          pay action REJECTED
          saga COMPENSATING, RESOURCE_EXHAUSTED of pay
          call reserve compensation #1
        """,
    )
    assert not saga.unproven


def test_codes_that_are_no_clear_no() -> None:
    """S4: a method may remove codes: then they prove nothing."""
    saga = play(
        saga_of(step("pay", rejected_codes=("INVALID_ARGUMENT",), needs_response=False, budget=QUICK)),
        """
        start
          call pay action #1
        [3s] pay FAILED_PRECONDITION
          pay action UNKNOWN
          saga COMPENSATING, OUTCOME_UNKNOWN of pay
          call pay compensation #1
        pay compensation OK
          pay compensation SUCCEEDED
          saga COMPENSATED
          unproven
        """,
    )
    assert saga.unproven


def test_already_done_by_us() -> None:
    """S3: the lookup is asked at once, and knows the response."""
    play(
        saga_of(step("reserve", lookup=True, already_done_codes=DONE_BEFORE)),
        """
        start
          call reserve action #1
        reserve ALREADY_EXISTS
          reserve action UNKNOWN
          call reserve lookup #1
        reserve lookup OK
          reserve lookup SUCCEEDED
          reserve action SUCCEEDED
          point of no return passed
          saga COMMITTED
        """,
    )


def test_already_done_by_another() -> None:
    """S4: it isn't ours and nothing was unknown before: that was a refusal."""
    saga = play(
        saga_of(step("reserve", lookup=True, already_done_codes=DONE_BEFORE)),
        """
        start
          call reserve action #1
        reserve ALREADY_EXISTS
          reserve action UNKNOWN
          call reserve lookup #1
        reserve lookup NOT_FOUND
          reserve lookup REJECTED
          reserve action REJECTED
          saga COMPENSATED, NOT_FOUND of reserve
        """,
    )
    assert not saga.unproven


def test_already_done_after_silence() -> None:
    """S4: an attempt ended unknown before, so it may have happened."""
    saga = play(
        saga_of(step("reserve", lookup=True, already_done_codes=DONE_BEFORE, needs_response=False)),
        """
        start
          call reserve action #1
        reserve UNAVAILABLE
          reserve action waits until 2s
        wake
          call reserve action #2
        reserve ALREADY_EXISTS
          reserve action UNKNOWN
          call reserve lookup #1
        reserve lookup NOT_FOUND
          reserve lookup REJECTED
          saga COMPENSATING, OUTCOME_UNKNOWN of reserve
          call reserve compensation #1
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATED
          unproven
        """,
    )
    assert saga.unproven


def test_already_done_and_the_lookup_is_silent() -> None:
    """S4: what the lookup never says stays unknown."""
    saga = play(
        saga_of(step("reserve", lookup=True, already_done_codes=DONE_BEFORE, needs_response=False, budget=QUICK)),
        """
        start
          call reserve action #1
        reserve ALREADY_EXISTS
          reserve action UNKNOWN
          call reserve lookup #1
        [5s] reserve lookup UNAVAILABLE
          reserve lookup UNKNOWN
          saga COMPENSATING, OUTCOME_UNKNOWN of reserve
          call reserve compensation #1
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATED
          unproven
        """,
    )
    assert saga.unproven


def test_already_done_behind_the_point() -> None:
    """S6: a retriable step is never rejected; it is repeated, then parked."""
    saga = play(
        saga_of(retriable("capture", lookup=True, already_done_codes=DONE_BEFORE)),
        """
        start
          point of no return passed
          call capture action #1
        capture ALREADY_EXISTS
          capture action UNKNOWN
          call capture lookup #1
        capture lookup NOT_FOUND
          capture lookup REJECTED
          capture action PENDING
        wake
          call capture action #2
        capture ALREADY_EXISTS
          capture action UNKNOWN
          capture lookup PENDING
          call capture lookup #2
        capture lookup NOT_FOUND
          capture lookup REJECTED
          capture action PARKED
          dead letter: capture action REFUSED
        """,
    )
    assert not saga.state.ended


def test_at_most_once() -> None:
    """S12: after silence it isn't called again, but undone."""
    play(
        saga_of(step("reserve", at_most_once=True, needs_response=False)),
        """
        start
          call reserve action #1
        reserve UNAVAILABLE
          reserve action UNKNOWN
          saga COMPENSATING, OUTCOME_UNKNOWN of reserve
          call reserve compensation #1
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATED
          unproven
        """,
    )


def test_at_most_once_in_flight_at_a_crash() -> None:
    """S12: the one crash that rolls a saga back."""
    play(
        saga_of(step("reserve", at_most_once=True, needs_response=False)),
        """
        start
          call reserve action #1
        adopt
          reserve action UNKNOWN
          saga COMPENSATING, OUTCOME_UNKNOWN of reserve
          call reserve compensation #1
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATED
          unproven
        """,
    )


def test_at_most_once_that_was_not_sent() -> None:
    """S12: what never left may be tried on."""
    play(
        saga_of(step("reserve", at_most_once=True)),
        """
        start
          call reserve action #1
        reserve not sent
          reserve action waits until 2s
        wake
          call reserve action #2
        reserve OK
          reserve action SUCCEEDED
          point of no return passed
          saga COMMITTED
        """,
    )


def test_parked_when_unknown() -> None:
    """S4, L1: a person decides; the saga's timeout still rolls it back."""
    saga = play(
        saga_of(step("order"), step("reserve", on_unknown=OnUnknown.PARK, budget=QUICK), timeout_s=20),
        """
        start
          call order action #1
        order OK
          order action SUCCEEDED
          call reserve action #1
        [5s] reserve UNAVAILABLE
          reserve action PARKED
          dead letter: reserve action OUTCOME_UNKNOWN
        wake
          saga COMPENSATING, TIMED_OUT of the saga
          call order compensation #1
        order compensation OK
          order compensation SUCCEEDED
          saga COMPENSATION_FAILED
        """,
    )
    assert saga.attention_required


def test_steps_after_the_compensation() -> None:
    """S8, L1: they begin when COMPENSATED is recorded; crashes and dead letters don't change that state."""
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
        retry apologise action
          apologise action PENDING
          dead letter closed: apologise action BUDGET_SPENT
        wake
          call apologise action #2
        adopt
          call apologise action #3
        apologise OK
          apologise action SUCCEEDED
        """,
    )
    assert saga.due_time is None
