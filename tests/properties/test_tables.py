"""The transition tables and the enums are complete and hold nothing that never happens."""

from __future__ import annotations

from enum import Enum

import pytest

from amends_coordinator.core import draft
from amends_coordinator.core.states import DeadLetterReason, Direction, Guarantee, IntentState, Outcome, SagaState
from amends_coordinator.core.transitions import (
    INTENT_TRANSITIONS,
    SAGA_TRANSITIONS,
    IntentMove,
    SagaMove,
    move_intent,
    move_saga,
)
from tests.properties.answers import ANSWERS
from tests.properties.explore.explorer import explore
from tests.properties.explore.shapes import Small

WRITTEN_BY_THE_LEDGER = {DeadLetterReason.UNREADABLE}
"""Reasons of dead letters that the core never opens."""

EVERY_ROAD = (
    Small(shape="C", desk=True, terminate=True, wiring=True, driver_fails=True, crashes=False, timeouts=False),
    Small(shape="C", guarantee=Guarantee.KEY, desk=True, park=True, timeouts=False, outages=False),
    Small(shape="C", guarantee=Guarantee.KEY, crashes=False, timeouts=False, outages=False),
    Small(shape="P", desk=True, soft_aborts=True),
    Small(shape="R", desk=True, wiring=True),
    Small(shape="R", guarantee=Guarantee.KEY, already_done=True, refusals=2),
    Small(shape="O", terminate=True),
    Small(shape="P-R", desk=True, terminate=True, crashes=False, timeouts=False, outages=False),
)
"""Small sagas that between them take every road there is."""


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
    for small in EVERY_ROAD:
        assert not explore(small).broken
    assert sagas == set(SAGA_TRANSITIONS)
    assert intents == set(INTENT_TRANSITIONS)
    assert reasons | WRITTEN_BY_THE_LEDGER == set(DeadLetterReason)


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
