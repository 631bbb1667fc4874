"""Stories of sagas that go forward: to the end, through silence and refusals, past the point of no return."""

from __future__ import annotations

from amends_coordinator.core.states import Guarantee, SagaState
from tests.unit.core.sagas import pivot, read, retriable, retry, saga_of, step
from tests.unit.core.stories import play


def test_everything_goes_well() -> None:
    """S1, S3: one step after the other, each announced with the record of the one before it."""
    saga = play(
        saga_of(step("order"), step("reserve"), pivot("ship"), retriable("capture")),
        """
        start
          call order action #1
        order OK
          order action SUCCEEDED
          call reserve action #1
        reserve OK
          reserve action SUCCEEDED
          point of no return passed
          call ship action #1
        ship OK
          ship action SUCCEEDED
          call capture action #1
        capture OK
          capture action SUCCEEDED
          saga COMMITTED
        """,
    )
    assert saga.due_time is None
    assert saga.ended_time == saga.updated_time
    assert saga.failure is None


def test_silence_is_repeated_with_the_same_row() -> None:
    """S2: no answer, garbage and a busy participant all mean "try again"; the row and its key stay the same."""
    saga = play(
        saga_of(step("reserve", budget=retry(total_s=60))),
        """
        start
          call reserve action #1
        reserve DEADLINE_EXCEEDED
          reserve action waits until 2s
        wake
          call reserve action #2
        reserve garbage
          reserve action waits until 5s
        wake
          call reserve action #3
        reserve UNAVAILABLE executed=no
          reserve action waits until 10s
        wake
          call reserve action #4
        reserve OK
          reserve action SUCCEEDED
          point of no return passed
          saga COMMITTED
        """,
    )
    assert len(saga.intents) == 1
    assert [attempt.status_code for attempt in saga.intents[0].attempts] == [
        "DEADLINE_EXCEEDED",
        "OK",
        "UNAVAILABLE",
        "OK",
    ]
    assert not saga.intents[0].unsettled


def test_without_any_guarantee_a_repetition_is_unproven() -> None:
    """S4: with guarantee NONE an attempt after an unknown one may have doubled the effect, whatever it answers."""
    play(
        saga_of(step("reserve", guarantee=Guarantee.NONE)),
        """
        start
          call reserve action #1
        reserve UNKNOWN
          reserve action waits until 2s
        wake
          unproven
          call reserve action #2
        reserve OK
          reserve action SUCCEEDED
          point of no return passed
          saga COMMITTED
        """,
    )


def test_repeating_what_was_never_sent_or_clearly_refused_assumes_nothing() -> None:
    """S4: without any guarantee, too: only an unknown attempt may have had an effect."""
    saga = play(
        saga_of(retriable("capture", guarantee=Guarantee.NONE)),
        """
        start
          point of no return passed
          call capture action #1
        capture not sent
          capture action waits until 2s
        wake
          call capture action #2
        capture FAILED_PRECONDITION
          capture action waits until 5s
        wake
          call capture action #3
        capture OK
          capture action SUCCEEDED
          saga COMMITTED
        """,
    )
    assert not saga.unproven


def test_unknown_action_is_found_by_its_lookup() -> None:
    """S3: the budget is spent, the lookup knows the response, and the saga goes on as if nothing had happened."""
    saga = play(
        saga_of(step("reserve", lookup=True, budget=retry(total_s=2)), step("pay")),
        """
        start
          call reserve action #1
        reserve DEADLINE_EXCEEDED
          reserve action UNKNOWN
          call reserve lookup #1
        reserve lookup UNAVAILABLE executed=no
          reserve lookup waits until 3s
        wake
          call reserve lookup #2
        reserve lookup OK
          reserve lookup SUCCEEDED
          reserve action SUCCEEDED
          call pay action #1
        """,
    )
    assert saga.intents[0].response == b"done"


def test_pivot_without_lookup_is_never_guessed() -> None:
    """S6: nobody can say what became of the pivot, so a person must; the saga stays RUNNING and undoes nothing."""
    saga = play(
        saga_of(step("reserve"), pivot("ship"), retriable("capture"), timeout_s=50),
        """
        start
          call reserve action #1
        reserve OK
          reserve action SUCCEEDED
          point of no return passed
          call ship action #1
        ship DEADLINE_EXCEEDED
          ship action waits until 3s
        wake
          call ship action #2
        [9s] ship DEADLINE_EXCEEDED
          ship action PARKED
          dead letter: ship action OUTCOME_UNKNOWN
        [20s] adopt
          nothing
        wake
          dead letter: saga TIMED_OUT
        adopt
          nothing
        """,
    )
    assert saga.state is SagaState.RUNNING
    assert saga.attention_required
    assert saga.due_time is None


def test_pivot_parks_after_a_lookup_that_proves_nothing() -> None:
    """S6: an unsealed NOT_FOUND to a pivot's lookup means "not yet"."""
    play(
        saga_of(pivot("ship", lookup=True)),
        """
        start
          point of no return passed
          call ship action #1
        [10s] ship DEADLINE_EXCEEDED
          ship action UNKNOWN
          call ship lookup #1
        ship lookup NOT_FOUND
          ship lookup REJECTED
          ship action PARKED
          dead letter: ship action OUTCOME_UNKNOWN
        """,
    )


def test_retriable_is_repeated_then_parked() -> None:
    """S3, S6: a refusal behind the pivot is no rejection, sealed or not; a person decides when the budget is spent."""
    saga = play(
        saga_of(pivot("ship"), retriable("capture"), retriable("notify")),
        """
        start
          point of no return passed
          call ship action #1
        ship OK
          ship action SUCCEEDED
          call capture action #1
        capture FAILED_PRECONDITION sealed
          capture action waits until 3s
        wake
          call capture action #2
        capture INVALID_ARGUMENT
          capture action PARKED
          dead letter: capture action REFUSED
        """,
    )
    assert saga.state is SagaState.RUNNING


def test_first_retriable_is_the_point_where_there_is_no_pivot() -> None:
    """S6: with no pivot the intent of the first retriable step is the point of no return."""
    play(
        saga_of(step("reserve"), retriable("capture"), timeout_s=5),
        """
        start
          call reserve action #1
        reserve OK
          reserve action SUCCEEDED
          point of no return passed
          call capture action #1
        capture NOT_FOUND
          capture action waits until 3s
        wake
          call capture action #2
        [5s] wake
          dead letter: saga TIMED_OUT
        capture OK
          capture action SUCCEEDED
          saga COMMITTED
        """,
    )


def test_read_only_behind_the_pivot_counts_as_retriable() -> None:
    """S6: it is repeated and then parked, and never rolls the saga back."""
    play(
        saga_of(pivot("ship"), read("track")),
        """
        start
          point of no return passed
          call ship action #1
        ship OK
          ship action SUCCEEDED
          call track action #1
        track NOT_FOUND
          track action waits until 3s
        wake
          call track action #2
        track NOT_FOUND
          track action PARKED
          dead letter: track action REFUSED
        """,
    )


def test_outage_parks_nothing() -> None:
    """L1: a retriable step whose participant is down waits for ever; a person is told once that the saga is late."""
    saga = play(
        saga_of(retriable("capture"), timeout_s=5),
        """
        start
          point of no return passed
          call capture action #1
        capture not sent
          capture action waits until 2s
        wake
          call capture action #2
        capture not sent
          capture action waits until 5s
        wake
          dead letter: saga TIMED_OUT
          call capture action #3
        [500s] capture not sent
          capture action waits until 504s
        wake
          call capture action #4
        """,
    )
    assert saga.intents[0].spent_us == 0


def test_abort_by_a_step_behind_the_point_comes_too_late() -> None:
    """S6: a pivot or retriable step that asks for an abort only tells a person."""
    saga = play(
        saga_of(pivot("ship"), retriable("capture")),
        """
        start
          point of no return passed
          call ship action #1
        ship OK abort=sorry
          ship action SUCCEEDED
          dead letter: ship action ABORT_TOO_LATE
          call capture action #1
        capture OK abort=sorry
          capture action SUCCEEDED
          saga COMMITTED
          dead letter: capture action ABORT_TOO_LATE
        """,
    )
    assert [letter.last_error for letter in saga.dead_letters] == ["sorry", "sorry"]
    assert saga.attention_required
