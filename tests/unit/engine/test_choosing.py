"""Which participant a call goes to: chosen once, kept in the ledger, never exchanged for whoever is there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from amends_coordinator.core.decision import Decision, Records
from amends_coordinator.core.ids import Instant, StepName
from amends_coordinator.core.states import Direction
from amends_coordinator.engine.choosing import choose_participants
from definitions_test.v1.lodging_pb2 import Trip
from tests.unit.definitions.samples import TRIP, compiled, intent, saga
from tests.unit.engine.rig import Directory

if TYPE_CHECKING:
    from amends_coordinator.core.saga import Intent

INN = "inn.Inn"
DESK = "inn.Desk"


def row(step: str, direction: Direction, service: str, **columns: object) -> Intent:
    """A row of one side of a step, whose method is of this service."""
    plain = replace(intent(step, b"", None), direction=direction, method=f"{service}/Call")
    return replace(plain, **columns)  # type: ignore[arg-type]  # each column as its type is


def chosen(
    announced: Intent,
    *others: Intent,
    serving: dict[str, list[str]],
    away: dict[str, list[str]] | None = None,
    text: str = TRIP,
) -> str:
    """Who is chosen when this row is announced in a saga that has the others already."""
    of = compiled(text)
    found = saga(of, Trip(guest="inn-7").SerializeToString(), *others, announced)
    records = Records(intents=(announced,), announced=(announced,))
    choose_participants(Decision(found, records, (), changed=True), of, Directory(serving, away or {}))
    return announced.participant


@pytest.mark.parametrize(("serving", "name"), [(["inn-1"], "inn-1"), ([], ""), (["inn-1", "inn-2"], "")])
def test_the_only_one_is_chosen(serving: list[str], name: str) -> None:
    """S2: a key that could reach either of two reaches neither."""
    assert chosen(row("book", Direction.ACTION, INN), serving={INN: serving}) == name


@pytest.mark.parametrize("serving", [["inn-1"], [], ["inn-1", "inn-2"]])
def test_who_is_named_is_chosen(serving: list[str]) -> None:
    """What the definition or the input says holds, whoever is there."""
    fixed = TRIP.replace('name: "book"', 'name: "book" participant: "inn-3"')
    assert chosen(row("book", Direction.ACTION, INN), serving={INN: serving}, text=fixed) == "inn-3"
    by_input = TRIP.replace('name: "book"', 'name: "book" participant_input: "guest"')
    assert chosen(row("book", Direction.ACTION, INN), serving={INN: serving}, text=by_input) == "inn-7"


@pytest.mark.parametrize(("unsettled", "name"), [(True, "inn-1"), (False, "inn-2")])
def test_the_choice_stays_once_something_may_have_happened(*, unsettled: bool, name: str) -> None:
    """S2: an attempt that ended unknown is repeated where it went, though another one has taken its place since."""
    again = row("book", Direction.ACTION, INN, participant="inn-1", unsettled=unsettled)
    assert chosen(again, serving={INN: ["inn-2"]}) == name


@pytest.mark.parametrize("direction", [Direction.COMPENSATION, Direction.LOOKUP])
@pytest.mark.parametrize("serving", [["inn-2"], [], ["inn-1", "inn-2"]])
def test_the_undo_and_the_lookup_go_where_the_action_went(direction: Direction, serving: list[str]) -> None:
    """S4: also if its participant is away and another one serves the method now: that one knows nothing of it."""
    action = row("book", Direction.ACTION, INN, participant="inn-1")
    assert chosen(row("book", direction, INN), action, serving={INN: serving}) == "inn-1"


@pytest.mark.parametrize(
    ("serving", "name"), [(["desk", "inn-1"], "inn-1"), (["desk"], "desk"), (["a", "b"], ""), ([], "")]
)
def test_an_undo_by_another_service(serving: list[str], name: str) -> None:
    """The participant that has the action undoes it, if it serves that service; else the only one that does."""
    action = row("book", Direction.ACTION, INN, participant="inn-1")
    found = chosen(row("book", Direction.COMPENSATION, DESK), action, serving={DESK: serving}, away={INN: ["inn-1"]})
    assert found == name


@pytest.mark.parametrize("direction", [Direction.COMPENSATION, Direction.LOOKUP])
@pytest.mark.parametrize("serving", [["desk"], [], ["desk", "inn-2"]])
def test_it_is_waited_for_while_it_is_away(direction: Direction, serving: list[str]) -> None:
    """S4: a participant that restarts just now still has the action; another desk would find nothing there to undo."""
    action = row("book", Direction.ACTION, INN, participant="inn-1")
    for away in ({DESK: ["inn-1"]}, {}):  # it restarts; it was taken out
        assert chosen(row("book", direction, DESK), action, serving={DESK: serving}, away=away) == "inn-1"


def test_an_action_that_went_nowhere_binds_nobody() -> None:
    """What was found pending after a crash although nobody served it is undone by the one that serves it now."""
    action = row("book", Direction.ACTION, INN, unsettled=True, updated_time=Instant(1))
    assert chosen(row("book", Direction.COMPENSATION, INN), action, serving={INN: ["inn-2"]}) == "inn-2"
    assert action.step == StepName("book")
