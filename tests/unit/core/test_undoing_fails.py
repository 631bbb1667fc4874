"""Stories of compensations that fail: repeated, parked, stalled, and what that means for the older ones."""

from __future__ import annotations

import pytest

from amends_coordinator.core.decide import decide
from amends_coordinator.core.events import AttemptEnded
from amends_coordinator.core.states import FailurePolicy, IntentState, SagaState
from tests.unit.core.sagas import at, read, retriable, retry, saga_of, step
from tests.unit.core.stories import answer, play


def test_not_found_is_no_proof_where_the_action_is_known() -> None:
    """S4: a compensation that finds nothing, although its action succeeded, is repeated and then parked."""
    saga = play(
        saga_of(step("reserve"), read("check")),
        """
        start
          call reserve action #1
        reserve OK
          reserve action SUCCEEDED
          call check action #1
        check NOT_FOUND
          check action REJECTED
          saga COMPENSATING, NOT_FOUND of check
          call reserve compensation #1
        reserve compensation NOT_FOUND
          reserve compensation waits until 4s
        wake
          call reserve compensation #2
        reserve compensation NOT_FOUND
          reserve compensation PARKED
          saga COMPENSATION_FAILED
          dead letter: reserve compensation REFUSED
        """,
    )
    assert saga.attention_required


TWO_DONE_THIRD_REFUSED = """
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
    reserve compensation DEADLINE_EXCEEDED
      reserve compensation waits until 5s
    wake
      call reserve compensation #2
"""


def test_continue_undoes_the_older_ones_all_the_same() -> None:
    """S4, S5: under CONTINUE a parked compensation holds back no older one, but the saga is not compensated."""
    saga = play(
        saga_of(step("order"), step("reserve"), step("pay")),
        TWO_DONE_THIRD_REFUSED
        + """
    [11s] reserve compensation DEADLINE_EXCEEDED
      reserve compensation PARKED
      dead letter: reserve compensation BUDGET_SPENT
      call order compensation #1
    order compensation OK
      order compensation SUCCEEDED
      saga COMPENSATION_FAILED
    """,
    )
    assert saga.compensations_owed == 1


def test_halt_holds_the_older_ones_back() -> None:
    """S5: under HALT nothing older is undone before a person has settled what is parked."""
    saga = play(
        saga_of(step("order"), step("reserve"), step("pay"), policy=FailurePolicy.HALT),
        TWO_DONE_THIRD_REFUSED
        + """
    [11s] reserve compensation DEADLINE_EXCEEDED
      reserve compensation PARKED
      saga COMPENSATION_FAILED
      dead letter: reserve compensation BUDGET_SPENT
    """,
    )
    assert saga.compensations_owed == 2


def test_stalled_compensation_stays_owed_and_holds_back_nothing() -> None:
    """S5, L1: what can't be sent for a whole budget is tried on for ever; under CONTINUE the older ones go on."""
    saga = play(
        saga_of(step("order"), step("reserve"), step("pay")),
        TWO_DONE_THIRD_REFUSED.replace("DEADLINE_EXCEEDED", "not sent")
        + """
    [14s] reserve compensation not sent
      reserve compensation waits until 16s
      call order compensation #1
    order compensation OK
      order compensation SUCCEEDED
    wake
      call reserve compensation #3
    reserve compensation OK
      reserve compensation SUCCEEDED
      saga COMPENSATED
    """,
    )
    assert not saga.dead_letters


def test_wiring_faults_spend_the_budget() -> None:
    """L1: a method that isn't there counts like a refusal: a step is rejected, a compensation parks as NO_HANDLER."""
    saga = play(
        saga_of(step("reserve"), step("pay")),
        """
        start
          call reserve action #1
        reserve OK
          reserve action SUCCEEDED
          call pay action #1
        pay UNIMPLEMENTED
          pay action waits until 3s
        wake
          call pay action #2
        pay PERMISSION_DENIED
          pay action REJECTED
          saga COMPENSATING, PERMISSION_DENIED of pay
          call reserve compensation #1
        reserve compensation UNAUTHENTICATED
          reserve compensation waits until 6s
        wake
          call reserve compensation #2
        reserve compensation UNIMPLEMENTED
          reserve compensation PARKED
          saga COMPENSATION_FAILED
          dead letter: reserve compensation NO_HANDLER
        """,
    )
    assert not saga.unproven


def test_wiring_fault_behind_the_point_parks() -> None:
    """S6: a retriable step whose method isn't there waits for a person."""
    play(
        saga_of(retriable("capture")),
        """
        start
          point of no return passed
          call capture action #1
        capture UNIMPLEMENTED
          capture action waits until 2s
        wake
          call capture action #2
        capture UNIMPLEMENTED
          capture action PARKED
          dead letter: capture action NO_HANDLER
        """,
    )


@pytest.mark.parametrize(
    ("codes", "said", "settles"),
    [
        ("NOT_FOUND", "NOT_FOUND", True),
        ("NOT_FOUND", "ABORTED", False),
        ("NOT_FOUND", "NOT_FOUND executed=no", False),
        ("ABORTED DATA_LOSS", "ABORTED", True),
        ("ABORTED DATA_LOSS", "DATA_LOSS", True),
        ("ABORTED DATA_LOSS", "ABORTED executed=no", False),
        ("OUT_OF_RANGE", "NOT_FOUND", False),
        ("", "NOT_FOUND", False),
    ],
    ids=str,
)
def test_codes_that_say_that_there_was_nothing(codes: str, said: str, *, settles: bool) -> None:
    """S4: a step names the codes, also those that are no refusal of an action; one that came without being carried out
    says nothing.
    """
    saga = play(
        saga_of(step("pay", needs_response=False, nothing_to_undo_codes=set(codes.split()), budget=retry(total_s=2))),
        """
        start
          call pay action #1
        pay UNAVAILABLE
          pay action UNKNOWN
          saga COMPENSATING, OUTCOME_UNKNOWN of pay
          call pay compensation #1
        """,
    )
    undo = saga.intents[1]
    after = decide(saga, AttemptEnded(at(3), undo.step, undo.direction, undo.attempt, answer(said))).saga
    assert (after.intents[1].state is IntentState.NOTHING_TO_UNDO) is settles
    assert (after.state is SagaState.COMPENSATED) is after.unproven is settles
