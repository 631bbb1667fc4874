"""Stories of rare orders of events, each of which the core once got wrong."""

from __future__ import annotations

from dataclasses import replace

from amends_coordinator.core.ids import Instant
from amends_coordinator.core.saga import Failure
from tests.unit.core.sagas import SECOND, pivot, retriable, retry, saga_of, saga_with, step
from tests.unit.core.stories import play


def test_terminated_past_the_point_and_rolled_back_all_the_same() -> None:
    """S4, L1: what the termination had parked before it ever began is dropped with its dead letter, and nothing of it
    is owed.
    """
    play(
        saga_of(step("order"), pivot("pay"), retriable("ship")),
        """
        start
          call order action #1
        order OK
          order action SUCCEEDED
          point of no return passed
          call pay action #1
        terminate
          pay action PARKED
          dead letter: pay action TERMINATED
          dead letter: ship action TERMINATED
        resolve pay action DID_NOT_HAPPEN
          pay action RESOLVED
          ship action DROPPED
          point of no return cleared
          saga COMPENSATING, RESOLVED_DID_NOT_HAPPEN of pay
          dead letter closed: pay action TERMINATED
          dead letter closed: ship action TERMINATED
        resolve ship action HAPPENED
          refused: LETTER_CLOSED
        wake
          call order compensation #1
        order compensation OK
          order compensation SUCCEEDED
          saga COMPENSATED
        """,
    )


def test_a_key_is_forgotten_while_another_step_answers() -> None:
    """S2, S4: what waits is not repeated with a key that may be forgotten, whatever it is that has the saga looked
    at.
    """
    play(
        saga_with((step("order", window_s=8), step("pay", needs_response=False))),
        """
        start
          call order action #1
          call pay action #1
        order UNAVAILABLE
          order action waits until 2s
        [20s] pay OK
          pay action SUCCEEDED
          order action PARKED
          saga COMPENSATING, OUTCOME_UNKNOWN of order
          dead letter: order action OUTCOME_UNKNOWN
          call pay compensation #1
        """,
    )


def test_an_action_that_began_after_the_abort_was_asked_for() -> None:
    """L1: it is cancelled after the grace, too."""
    saga = play(
        saga_with((step("order"),)),
        """
        start
          call order action #1
        """,
    )
    cause = Failure(step=None, reason="ABORTED", status_code="", message="", time=Instant(-SECOND))
    play(
        replace(saga, abort_requested=True, failure=cause, due_time=Instant(SECOND)),
        """
        [1s] wake
          saga COMPENSATING
        wake
          order action PARKED
          saga COMPENSATION_FAILED
          dead letter: order action OUTCOME_UNKNOWN
          cancel order action
        """,
    )


def test_a_retried_compensation_waits_for_a_lookup() -> None:
    """S5: a compensation that was never called begins only when no lookup is in flight."""
    play(
        saga_with((step("order"), step("pay", lookup=True))),
        """
        start
          call order action #1
          call pay action #1
        order OK
          order action SUCCEEDED
        terminate
          pay action PARKED
          saga COMPENSATION_FAILED, TERMINATED of the saga
          dead letter: order compensation TERMINATED
          dead letter: pay action TERMINATED
        retry pay action
          pay action UNKNOWN
          pay lookup waits until 3s
          saga COMPENSATING
          dead letter closed: pay action TERMINATED
        wake
          call pay lookup #1
        retry order compensation
          order compensation PENDING
          dead letter closed: order compensation TERMINATED
        wake
        pay lookup NOT_FOUND sealed
          pay lookup REJECTED
          pay action REJECTED
          call order compensation #1
        """,
    )


def test_a_settle_delay_counts_from_the_end_of_an_attempt_that_began_late() -> None:
    """S4: an attempt that had to wait for its ledger ends later than its row says; what a lookup says before the delay
    after that is over proves nothing.
    """
    play(
        saga_with((step("order", lookup=True, settle_delay_s=5, budget=retry(total_s=1)),)),
        """
        start
          call order action #1
        [20s] order UNAVAILABLE
          order action UNKNOWN
          call order lookup #1
        [21s] order lookup NOT_FOUND
          order lookup waits until 25s
        """,
    )


def test_a_settle_delay_allows_for_the_slot_that_an_attempt_may_have_waited_for() -> None:
    """S4: a call waits for a slot for at most its timeout before it leaves; of one whose coordinator is gone nobody
    knows for how long it did.
    """
    play(
        saga_with((step("order", lookup=True, settle_delay_s=5, at_most_once=True),)),
        """
        start
          call order action #1
        [1s] adopt
          order action UNKNOWN
          call order lookup #1
        order lookup NOT_FOUND
          order lookup waits until 15s
        """,
    )
