"""The participant of a step that the saga's input chooses: which one it is, and what input chooses none."""

from __future__ import annotations

import pytest

from amends_coordinator.core.ids import StepName
from amends_coordinator.definitions.errors import PayloadError
from definitions_test.v1.lodging_pb2 import Trip
from tests.unit.definitions.samples import TRIP, compiled, definition, registered, saga

CHOSEN = TRIP.replace('name: "pay"', 'name: "pay" participant_input: "guest"').replace(
    'name: "tell"', 'name: "tell" participant: "post"'
)
AFTERWARDS = """
on_compensated { name: "sorry" participant_input: "card"
  action { method: "definitions_test.v1.LodgingService/Everything" } }
"""


def test_the_input_chooses_for_life() -> None:
    """Promise: which participant serves a step is read from the stored input, so it is the same after a crash."""
    of = compiled(CHOSEN)
    found = saga(of, Trip(guest="inn-2").SerializeToString())
    names = [of.participant(found, StepName(step)) for step in ("book", "pay", "tell")]
    assert names == ["", "inn-2", "post"]


def test_what_is_chosen_is_known_at_the_start() -> None:
    """Promise: the participants that an input chooses are told once each, those of `on_compensated` steps too."""
    of = compiled(CHOSEN + AFTERWARDS)
    assert of.chosen_participants(Trip(guest="inn-2", card="inn-2").SerializeToString()) == {"inn-2"}
    assert of.chosen_participants(Trip(guest="inn-2", card="post").SerializeToString()) == {"inn-2", "post"}
    assert compiled().chosen_participants(Trip(guest="??").SerializeToString()) == set()


@pytest.mark.parametrize("name", ["", "Inn", "an inn", "i" * 65, "inn\n", "1st"])
def test_an_input_that_names_nobody_is_refused(name: str) -> None:
    """Promise: a start whose input names no participant is refused with the field's path."""
    of = compiled(CHOSEN)
    with pytest.raises(PayloadError, match="chooses the participant of a step") as caught:
        of.chosen_participants(Trip(guest=name).SerializeToString())
    assert caught.value.path == "input.guest"


def test_a_damaged_input_chooses_nobody() -> None:
    """L2: rows that somebody damaged end in an error of their own, and never in a call of whoever serves the method."""
    of = compiled(CHOSEN)
    for damaged in (b"", b"\xff"):
        with pytest.raises(PayloadError):
            of.participant(saga(of, damaged), StepName("pay"))


def test_the_choice_stays_in_the_resolved_definition() -> None:
    """Promise: another choice is another version, and resolving again changes nothing."""
    chosen = registered(definition(CHOSEN))
    assert [step.participant_input for step in chosen.steps] == ["", "guest", ""]
    assert registered(chosen) == chosen
    assert chosen.version != registered(definition(TRIP)).version
