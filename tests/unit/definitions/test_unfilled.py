"""What a compensation or lookup would be called without is found when the definition is registered."""

from __future__ import annotations

import pytest

from amends_coordinator.definitions.registration import InvalidDefinitionError
from tests.unit.definitions.samples import PACKAGE, SERVICE, bindings, definition, registered

DEFAULT = 'bindings {{ target: "{}" default_value {{}} }}'
BOUND = 'bindings {{ target: "{}" input: "guest" }}'
LITERAL = f'literals {{ type_url: "{PACKAGE}.VacateRequest" value: "\\n\\x02A1" }}'


def step(undo: str, *, action: str = "Book", lookup: str = "") -> str:
    """A definition with one step that is undone so, and looked up so."""
    calls = f"compensation {{ {undo} }}" + (f" lookup {{ {lookup} }}" if lookup else "")
    named = f'name: "trip" input_type: "{PACKAGE}.Trip"'
    return f'{named} steps {{ name: "a" action {{ method: "{SERVICE}/{action}" }} {calls} }}'


def call(method: str, *parts: str, by_key: bool = False) -> str:
    """A call; without parts it says nothing about its request."""
    request = f" request {{ {' '.join(parts)} }}" if parts else ""
    return f'method: "{SERVICE}/{method}"{request}' + (" by_key: true" if by_key else "")


def unfilled(text: str) -> list[str]:
    """Where and what registration finds unfilled; nothing else may be wrong."""
    try:
        registered(definition(text))
    except InvalidDefinitionError as error:
        sentences = [(fault.path, *fault.description.partition(": ")[::2]) for fault in error.faults]
        assert all(start.startswith("nothing fills ") and "bind it" in rest for _, start, rest in sentences)
        return [f"{path} {start.removeprefix('nothing fills ')}" for path, start, _ in sentences]
    return []


UNDO = "steps[0].compensation.request"


def test_a_renamed_field_of_an_undo_is_a_fault() -> None:
    """S4: a compensation is never called with an empty id, where nobody said that it should be."""
    for undo in (call("Vacate"), call("Vacate", LITERAL.partition("value")[0] + "}")):
        assert unfilled(step(undo)) == [f"{UNDO} place", f"{UNDO} note", f"{UNDO} oneof refund"]


def test_the_fault_says_what_to_do() -> None:
    """Errors: reason, what went wrong, where, and what to do now."""
    with pytest.raises(InvalidDefinitionError) as caught:
        registered(definition(step(call("Vacate"), lookup=call("FindStay"))))
    place, _, refund, stay = (fault.description for fault in caught.value.faults)
    assert place == (
        "nothing fills place: neither the action's response nor its request has a field of that name and type; "
        "bind it (compensated_by(Vacate(place=...))), rename it, or leave it empty on purpose "
        "(`default_value`; in Python Vacate(place=None)), or make it by_key"
    )
    assert "compensated_by(Vacate(account=...))" in refund
    assert stay == (
        "nothing fills booking_id: the action's request doesn't have a field of that name and type; "
        "bind it (looked_up_by(FindStay(booking_id=...))), often to saga.action_key, rename it, or leave it empty on "
        "purpose (`default_value`; in Python FindStay(booking_id=None))"
    )


def test_a_lookup_has_no_response_to_be_filled_from() -> None:
    """S4: a lookup is asked while the response is missing, so only the request can fill it."""
    assert unfilled(step(call("Cancel"), lookup=call("FindStay"))) == ["steps[0].lookup.request booking_id"]
    bound = call("FindStay", 'bindings { target: "booking_id" saga: SAGA_FIELD_ACTION_KEY }')
    assert unfilled(step(call("Cancel"), lookup=bound)) == []


@pytest.mark.parametrize(
    "undo",
    [
        call("Vacate", BOUND.format("place")),
        call("Vacate", LITERAL),
        call("Vacate", *(DEFAULT.format(name) for name in ("place", "note", "account", "card"))),
        call("Vacate", by_key=True),
        call("Close"),
    ],
    ids=["bound", "literal", "empty on purpose", "by key", "no fields"],
)
def test_what_its_author_chose_is_accepted(undo: str) -> None:
    """Promise: where the definition says what a request holds, or none is needed, nobody is asked again."""
    assert unfilled(step(undo, action="Pay")) == []


def test_a_template_that_fills_nothing_is_a_fault() -> None:
    """S4: a constructor call whose fields all stay empty is as good as none."""
    empty = call("Vacate", DEFAULT.format("note"))
    assert unfilled(step(empty, action="Pay")) == [f"{UNDO} place", f"{UNDO} oneof refund", f"{UNDO} oneof payment"]


def test_one_member_of_a_oneof_is_enough() -> None:
    """Promise: a oneof holds one of its members, so one has to be filled."""
    undo = call("Vacate", *(DEFAULT.format(name) for name in ("place", "note", "voucher")))
    resolved = registered(definition(step(undo))).steps[0].compensation
    assert bindings(resolved)["card"] == "step_request a card"
