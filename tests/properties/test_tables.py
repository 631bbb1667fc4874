"""The transition tables and the enums are complete and hold nothing that never happens."""

from __future__ import annotations

from enum import Enum

import pytest

from amends_coordinator.core import draft
from amends_coordinator.core.plan import Plan
from amends_coordinator.core.states import DeadLetterReason, Direction, IntentState, Outcome, SagaState
from amends_coordinator.core.transitions import (
    INTENT_TRANSITIONS,
    SAGA_TRANSITIONS,
    IntentMove,
    SagaMove,
    move_intent,
    move_saga,
)
from tests.properties.answers import ANSWERS
from tests.properties.plans import Options, small_plan
from tests.properties.search import search

OF_PEOPLE = {(SagaState.COMPENSATION_FAILED, SagaMove.TAKEN_UP_AGAIN)}
"""Rows that only a verb of a person leads to; their tests are those of the verbs."""

OF_PEOPLE_OR_LATER_CALLS = {
    row for row in INTENT_TRANSITIONS if row[0] is IntentState.PARKED or row[1] is IntentMove.CALL_AGAIN
}
TOLD_BY_OTHERS = {DeadLetterReason.TERMINATED, DeadLetterReason.UNREADABLE, DeadLetterReason.DRIVER_FAILED}


def _plans() -> tuple[Plan, ...]:
    """Small sagas that between them take every road there is."""
    quick, blind = Options(rounds=1), Options(rounds=1, lookup=False, needs_response=True)
    return (small_plan("CP", quick), small_plan("C", blind), small_plan("O", quick), small_plan("R", quick))


def test_every_row_of_the_tables_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """S8: what is not in the tables is illegal, so nothing may be in them that no road leads to."""
    sagas: set[tuple[SagaState, SagaMove]] = set()
    intents: set[tuple[IntentState, IntentMove]] = set()

    def watched_saga(state: SagaState, move: SagaMove) -> SagaState:
        sagas.add((state, move))
        return move_saga(state, move)

    def watched_intent(state: IntentState, move: IntentMove) -> IntentState:
        intents.add((state, move))
        return move_intent(state, move)

    reasons: set[DeadLetterReason] = set()
    monkeypatch.setattr(draft, "move_saga", watched_saga)
    monkeypatch.setattr(draft, "move_intent", watched_intent)
    original = draft.Draft.open_dead_letter

    def watched_letter(self: draft.Draft, *where: object) -> None:
        reasons.update(what for what in where if isinstance(what, DeadLetterReason))
        original(self, *where)  # type: ignore[arg-type]  # handed on as it came

    monkeypatch.setattr(draft.Draft, "open_dead_letter", watched_letter)
    for plan in _plans():
        assert not search(plan).broken
    assert sagas | OF_PEOPLE == set(SAGA_TRANSITIONS)
    assert intents | OF_PEOPLE_OR_LATER_CALLS == set(INTENT_TRANSITIONS)
    assert reasons | TOLD_BY_OTHERS == set(DeadLetterReason)


def test_every_member_has_its_place() -> None:
    """Every state is reached or left by the tables, every move is in one, every outcome is answered by somebody."""
    reached = {SagaState.RUNNING, *SAGA_TRANSITIONS.values()}
    assert reached == set(SagaState)
    assert {IntentState.PENDING, *INTENT_TRANSITIONS.values()} == set(IntentState)
    assert {move for _, move in SAGA_TRANSITIONS} == set(SagaMove)
    assert {move for _, move in INTENT_TRANSITIONS} == set(IntentMove)
    assert {answer.outcome for answers in ANSWERS.values() for answer in answers} == set(Outcome)
    assert set(ANSWERS) == set(Direction)


@pytest.mark.parametrize("state", [state for state in SagaState if state.ended])
def test_no_row_leads_out_of_an_end(state: SagaState) -> None:
    """S8: `COMMITTED` and `COMPENSATED` never change."""
    assert not [row for row in SAGA_TRANSITIONS if row[0] is state]


@pytest.mark.parametrize(
    "members", [SagaState, IntentState, Direction, Outcome, DeadLetterReason], ids=lambda e: e.__name__
)
def test_values_are_names(members: type[Enum]) -> None:
    """What stands in the ledger's columns is the member's name, so that plain SQL reads well."""
    assert all(member.value == member.name for member in members)
