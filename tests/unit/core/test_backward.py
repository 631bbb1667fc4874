"""Stories of sagas that roll back: who is undone, in which order, and what a person has to decide."""

from __future__ import annotations

import pytest

from amends_coordinator.core.decide import decide
from amends_coordinator.core.events import AttemptEnded, Started
from amends_coordinator.core.ids import StepName
from amends_coordinator.core.saga import Failure
from amends_coordinator.core.states import Direction, Guarantee, SagaState
from tests.unit.core.sagas import at, pivot, read, retry, saga_of, step
from tests.unit.core.stories import answer, play


def test_third_is_rejected_and_the_others_undone_newest_first() -> None:
    """S4, S5: a clear refusal owes nothing; what happened is undone, each after the one that followed it."""
    saga = play(
        saga_of(step("order"), step("reserve"), pivot("ship")),
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
        ship FAILED_PRECONDITION reason=NO_CARRIER
          ship action REJECTED
          point of no return cleared
          saga COMPENSATING, NO_CARRIER of ship
          call reserve compensation #1
        reserve compensation OK
          reserve compensation SUCCEEDED
          call order compensation #1
        order compensation OK
          order compensation SUCCEEDED
          saga COMPENSATED
        """,
    )
    assert saga.compensations_owed == 0
    assert not saga.unproven
    assert saga.failure is not None
    assert (saga.failure.step, saga.failure.message) == ("ship", "it said FAILED_PRECONDITION")


def test_unsealed_refusal_after_silence_proves_nothing() -> None:
    """S4: it may be the echo of our own success, so the step is compensated although it was "refused"."""
    saga = play(
        saga_of(step("reserve", needs_response=False, budget=retry(refusals=2, total_s=60))),
        """
        start
          call reserve action #1
        reserve DEADLINE_EXCEEDED
          reserve action waits until 2s
        wake
          call reserve action #2
        reserve ALREADY_EXISTS
          reserve action waits until 5s
        wake
          call reserve action #3
        reserve ALREADY_EXISTS
          reserve action UNKNOWN
          saga COMPENSATING, OUTCOME_UNKNOWN of reserve
          call reserve compensation #1
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATED
          unproven
        """,
    )
    assert saga.unproven


def test_sealed_refusal_after_silence_proves_it() -> None:
    """S4: the participant promises never to run the key, so nothing is owed and nothing is unproven."""
    saga = play(
        saga_of(step("reserve")),
        """
        start
          call reserve action #1
        reserve DEADLINE_EXCEEDED
          reserve action waits until 2s
        wake
          call reserve action #2
        reserve FAILED_PRECONDITION sealed
          reserve action REJECTED
          saga COMPENSATED, FAILED_PRECONDITION of reserve
        """,
    )
    assert not saga.unproven


def test_sealed_lookup_proves_that_nothing_happened() -> None:
    """S4: a sealed NOT_FOUND to the lookup settles the step as rejected."""
    saga = play(
        saga_of(step("order"), step("reserve", lookup=True, budget=retry(total_s=2))),
        """
        start
          call order action #1
        order OK
          order action SUCCEEDED
          call reserve action #1
        reserve UNAVAILABLE
          reserve action UNKNOWN
          call reserve lookup #1
        reserve lookup NOT_FOUND sealed
          reserve lookup REJECTED
          reserve action REJECTED
          saga COMPENSATING, NOT_FOUND of reserve
          call order compensation #1
        order compensation OK
          order compensation SUCCEEDED
          saga COMPENSATED
        """,
    )
    assert not saga.unproven


def test_not_found_from_a_participant_that_did_not_look_means_nothing() -> None:
    """S4: with `amends-executed: no` neither a lookup's nor a compensation's NOT_FOUND says anything."""
    play(
        saga_of(step("reserve", lookup=True, by_key=True, budget=retry(total_s=2))),
        """
        start
          call reserve action #1
        reserve UNAVAILABLE
          reserve action UNKNOWN
          call reserve lookup #1
        reserve lookup NOT_FOUND executed=no
          reserve lookup waits until 3s
        wake
          call reserve lookup #2
        reserve lookup NOT_FOUND
          reserve lookup REJECTED
          saga COMPENSATING, OUTCOME_UNKNOWN of reserve
          call reserve compensation #1
        reserve compensation NOT_FOUND executed=no
          reserve compensation waits until 6s
        """,
    )


def test_unsealed_lookup_means_not_yet() -> None:
    """S4: after an unsealed NOT_FOUND the step may still happen; a compensation by key finds its work and is called."""
    saga = play(
        saga_of(step("reserve", lookup=True, by_key=True, budget=retry(total_s=2))),
        """
        start
          call reserve action #1
        reserve UNAVAILABLE
          reserve action UNKNOWN
          call reserve lookup #1
        reserve lookup NOT_FOUND
          reserve lookup REJECTED
          saga COMPENSATING, OUTCOME_UNKNOWN of reserve
          call reserve compensation #1
        reserve compensation NOT_FOUND
          reserve compensation NOTHING_TO_UNDO
          saga COMPENSATED
          unproven
        """,
    )
    assert saga.unproven


def test_lookup_that_never_answers_gives_up() -> None:
    """S4: when the lookup's budget is spent too, the step may have happened."""
    play(
        saga_of(step("reserve", lookup=True, needs_response=False, budget=retry(total_s=4))),
        """
        start
          call reserve action #1
        [3s] reserve UNAVAILABLE
          reserve action UNKNOWN
          call reserve lookup #1
        reserve lookup FAILED_PRECONDITION
          reserve lookup waits until 5s
        wake
          call reserve lookup #2
        reserve lookup DEADLINE_EXCEEDED
          reserve lookup UNKNOWN
          saga COMPENSATING, OUTCOME_UNKNOWN of reserve
          call reserve compensation #1
        """,
    )


def test_compensation_that_needs_the_missing_response_is_never_called() -> None:
    """S4: the action parks instead, a person is told, and the steps before it are undone all the same."""
    saga = play(
        saga_of(step("order"), step("reserve", budget=retry(total_s=2))),
        """
        start
          call order action #1
        order OK
          order action SUCCEEDED
          call reserve action #1
        reserve DEADLINE_EXCEEDED
          reserve action PARKED
          saga COMPENSATING, OUTCOME_UNKNOWN of reserve
          dead letter: reserve action OUTCOME_UNKNOWN
          call order compensation #1
        order compensation OK
          order compensation SUCCEEDED
          saga COMPENSATION_FAILED
        """,
    )
    assert saga.compensations_owed == 1
    assert saga.due_time is None
    assert [intent.direction for intent in saga.intents if intent.step == "reserve"] == ["ACTION"]


def test_barrier_makes_the_end_proven() -> None:
    """S4: under a barrier no late action can stand behind its compensation, so nothing is assumed."""
    saga = play(
        saga_of(step("reserve", needs_response=False, guarantee=Guarantee.BARRIER, budget=retry(total_s=2))),
        """
        start
          call reserve action #1
        reserve DEADLINE_EXCEEDED
          reserve action UNKNOWN
          saga COMPENSATING, OUTCOME_UNKNOWN of reserve
          call reserve compensation #1
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATED
        """,
    )
    assert not saga.unproven


def test_step_asks_for_an_abort() -> None:
    """S4, S10: a step that succeeded and asks to roll back is undone too; here its lookup passes on the wish."""
    play(
        saga_of(step("reserve", lookup=True, budget=retry(total_s=2)), step("pay")),
        """
        start
          call reserve action #1
        reserve UNAVAILABLE
          reserve action UNKNOWN
          call reserve lookup #1
        reserve lookup OK abort=sold_out
          reserve lookup SUCCEEDED
          reserve action SUCCEEDED
          saga COMPENSATING, ABORTED_BY_STEP of reserve
          call reserve compensation #1
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATED
        """,
    )


def test_read_only_step_asks_for_an_abort() -> None:
    """S4: there is nothing to undo of it, but what came before is undone."""
    play(
        saga_of(step("reserve"), read("check"), pivot("ship")),
        """
        start
          call reserve action #1
        reserve OK
          reserve action SUCCEEDED
          call check action #1
        check OK abort=suspicious
          check action SUCCEEDED
          saga COMPENSATING, ABORTED_BY_STEP of check
          call reserve compensation #1
        """,
    )


def test_unsettled_read_only_step_counts_as_rejected() -> None:
    """S4: whatever became of it, there is nothing to undo and nothing unproven."""
    saga = play(
        saga_of(step("reserve"), read("check")),
        """
        start
          call reserve action #1
        reserve OK
          reserve action SUCCEEDED
          call check action #1
        [11s] check DEADLINE_EXCEEDED
          check action REJECTED
          saga COMPENSATING, DEADLINE_EXCEEDED of check
          call reserve compensation #1
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATED
        """,
    )
    assert not saga.unproven


def test_a_step_with_nothing_to_undo_does_not_let_older_ones_pass() -> None:
    """S5: the order goes through a read-only step: what is older waits for what is newer on its other side."""
    play(
        saga_of(step("order"), read("check"), step("reserve"), read("weigh")),
        """
        start
          call order action #1
        order OK
          order action SUCCEEDED
          call check action #1
        check OK
          check action SUCCEEDED
          call reserve action #1
        reserve OK
          reserve action SUCCEEDED
          call weigh action #1
        weigh OUT_OF_RANGE
          weigh action REJECTED
          saga COMPENSATING, OUT_OF_RANGE of weigh
          call reserve compensation #1
        reserve compensation UNAVAILABLE
          reserve compensation waits until 6s
        wake
          call reserve compensation #2
        reserve compensation OK
          reserve compensation SUCCEEDED
          call order compensation #1
        """,
    )


def test_pivot_rejected_by_its_sealed_lookup_is_undone() -> None:
    """S6: only the proof that the pivot never happens clears the point of no return."""
    play(
        saga_of(step("reserve"), pivot("ship", lookup=True)),
        """
        start
          call reserve action #1
        reserve OK
          reserve action SUCCEEDED
          point of no return passed
          call ship action #1
        [11s] ship UNAVAILABLE
          ship action UNKNOWN
          call ship lookup #1
        ship lookup NOT_FOUND sealed
          ship lookup REJECTED
          ship action REJECTED
          point of no return cleared
          saga COMPENSATING, NOT_FOUND of ship
          call reserve compensation #1
        """,
    )


def test_late_answers_are_dropped() -> None:
    """S8: an answer to attempt n never decides attempt n + 1, and nothing said after the end is heard."""
    saga = play(
        saga_of(step("reserve", budget=retry(total_s=60))),
        """
        start
          call reserve action #1
        reserve DEADLINE_EXCEEDED
          reserve action waits until 2s
        reserve #1 OK
          late answer dropped
        wake
          call reserve action #2
        reserve #1 OK
          late answer dropped
        reserve #2 FAILED_PRECONDITION sealed
          reserve action REJECTED
          saga COMPENSATED, FAILED_PRECONDITION of reserve
        reserve #2 OK
          late answer dropped
        reserve compensation OK
          late answer dropped
        [99s] adopt
          nothing
        """,
    )
    assert saga.state is SagaState.COMPENSATED


@pytest.mark.parametrize(
    ("said", "reason", "status_code", "message"),
    [
        ("FAILED_PRECONDITION", "FAILED_PRECONDITION", "FAILED_PRECONDITION", "it said FAILED_PRECONDITION"),
        ("OUT_OF_RANGE reason=TOO_MUCH", "TOO_MUCH", "OUT_OF_RANGE", "it said OUT_OF_RANGE"),
        ("OK abort=fraud", "ABORTED_BY_STEP", "OK", "fraud"),
        ("DEADLINE_EXCEEDED", "OUTCOME_UNKNOWN", "DEADLINE_EXCEEDED", "it said DEADLINE_EXCEEDED"),
    ],
)
def test_first_cause_is_told(said: str, reason: str, status_code: str, message: str) -> None:
    """S8: why a saga rolled back is its first cause, in the participant's own words, with the step and the time."""
    saga = decide(saga_of(step("reserve", needs_response=False, budget=retry(total_s=2))), Started(at(0))).saga
    saga = decide(saga, AttemptEnded(at(3), StepName("reserve"), Direction.ACTION, 1, answer(said))).saga
    assert saga.failure == Failure(
        step=StepName("reserve"), reason=reason, status_code=status_code, message=message, time=at(3).now
    )


def test_rows_keep_what_was_answered() -> None:
    """S11: the responses of a lookup and of a compensation are kept in their rows."""
    saga = play(
        saga_of(step("reserve", lookup=True, budget=retry(total_s=2)), read("check")),
        """
        start
          call reserve action #1
        reserve UNAVAILABLE
          reserve action UNKNOWN
          call reserve lookup #1
        reserve lookup OK
          reserve lookup SUCCEEDED
          reserve action SUCCEEDED
          call check action #1
        check NOT_FOUND
          check action REJECTED
          saga COMPENSATING, NOT_FOUND of check
          call reserve compensation #1
        reserve compensation OK
          reserve compensation SUCCEEDED
          saga COMPENSATED
        """,
    )
    responses = {(intent.step, intent.direction): intent.response for intent in saga.intents}
    assert responses == {
        ("reserve", Direction.ACTION): b"done",
        ("reserve", Direction.LOOKUP): b"done",
        ("check", Direction.ACTION): None,
        ("reserve", Direction.COMPENSATION): b"done",
    }
