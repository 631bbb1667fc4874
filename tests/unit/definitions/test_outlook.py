"""What `amends check` says of a step: what happens in doubt, what its key is good for, what to be warned of."""

from __future__ import annotations

import pytest

from amends_coordinator.definitions.outlook import Outlook, StepOutlook, outlook_of
from tests.unit.definitions.samples import PACKAGE, SERVICE, definition, registered

HEAD = f'name: "trip" input_type: "{PACKAGE}.Trip"'
OF_HOLD = 'request { bindings { target: "hold_id" step_response { step: "hold" path: "hold_id" } } }'
BARRIER, NONE = "guarantee: GUARANTEE_BARRIER", "guarantee: GUARANTEE_NONE"


def call(method: str, *said: str) -> str:
    """A call of the service."""
    return f'{{ method: "{SERVICE}/{method}" {" ".join(said)} }}'


def shown(step: str, *, beside: str = "") -> tuple[Outlook, StepOutlook]:
    """What is said of a definition, and of its last step."""
    found = outlook_of(registered(definition(f"{HEAD} {beside} steps {{ {step} }}")))
    return found, found.steps[-1]


BOOK = f'name: "book" action {call("Book")}'
HOLD = f'name: "hold" action {call("Hold")} compensation {call("Free", OF_HOLD)}'
PAY = f'name: "pay" action {call("Pay")}'
CLOSE = f"{PAY} compensation {call('Close')}"
PIVOT, READ_ONLY, RETRIABLE = (f"{PAY} kind: STEP_KIND_{kind}" for kind in ("PIVOT", "READ_ONLY", "RETRIABLE"))
BRIEF = f'name: "pay" kind: STEP_KIND_RETRIABLE action {call("Pay", "idempotency_window { seconds: 600 }")}'

REPEATED = "repeated with the same key for 30 s of trying"
PATIENTLY = "repeated with the same key for 1 h of trying"
ONCE = "not repeated: it is to be called at most once"
ASKED = "then FindBooking is asked, for 1 h: OK says that it happened"
SEALED = "then FindHold is asked, for 1 h: OK says that it happened, a sealed NOT_FOUND that it never will"
LATE = "NOT_FOUND that it did not if it is asked 10 s after the last attempt began (the saga is then unproven)"
BACK = "and the saga rolls back"
UNDONE = f"else undone as if it had happened, {BACK}"
PARKED = f"else parked for a person, {BACK}: Cancel needs the response that never came"
STAYS = "else parked for a person; the saga stays RUNNING"
WEAKER = "its compensation Cancel and its lookup FindBooking promise no more"
STANDS = "; an action that comes after its compensation stands"


@pytest.mark.parametrize(
    ("step", "sentences"),
    [
        (CLOSE, [REPEATED, f"{UNDONE}: Close needs nothing of the response"]),
        (BOOK, [REPEATED, f"{ASKED}, NOT_FOUND proves nothing unless it is sealed", PARKED]),
        (f"{BOOK} settle_delay {{ seconds: 8 }}", [REPEATED, f"{ASKED}, {LATE}", PARKED]),
        (f"{HOLD} at_most_once: true", [ONCE, SEALED, f"{UNDONE}: Free finds it by the action's key"]),
        (
            f"{HOLD} settle_delay {{ seconds: 8 }} at_most_once: true",
            [
                ONCE,
                f"{SEALED}, {LATE.replace('NOT_FOUND', 'another one').replace('10 s', '13 s')}",
                f"{UNDONE}: Free finds it by the action's key",
            ],
        ),
        (
            f"{CLOSE} on_unknown: ON_UNKNOWN_PARK",
            [REPEATED, "else parked for a person (on_unknown); steps that don't wait for it go on"],
        ),
        (PIVOT, [REPEATED, "else parked for a person, never guessed; the saga stays RUNNING"]),
        (READ_ONLY, [REPEATED, f"else it counts as refused, {BACK}: there is nothing to undo"]),
        (RETRIABLE, [PATIENTLY, STAYS]),
        (BRIEF, [f"{PATIENTLY}, at most 600 s after the first call", STAYS]),
    ],
    ids=["undoable", "response", "settled", "barrier", "both", "park", "pivot", "read-only", "retriable", "window"],
)
def test_what_happens_when_nobody_knows(step: str, sentences: list[str]) -> None:
    """Promise: what is said of a step in doubt is what is done by its kind and options: repeat, look up, decide."""
    assert list(shown(step)[1].when_unknown) == sentences


def test_read_only_behind_the_pivot_is_repeated_like_a_retriable() -> None:
    """Promise: a read-only step behind the point of no return is never refused."""
    _, step = shown(READ_ONLY.replace("pay", "quote"), beside=f"steps {{ {PIVOT} }}")
    assert list(step.when_unknown) == [PATIENTLY, STAYS]


@pytest.mark.parametrize(
    ("step", "key"),
    [
        (CLOSE, f"KEY: once per key{STANDS}"),
        (f"{CLOSE} {NONE}", f"NONE: a repeated call may double its effect{STANDS}"),
        (HOLD, "BARRIER: once per key, remembered for 1 h; an action that comes after its compensation is refused"),
        (
            BOOK,
            f"KEY: once per key{STANDS} (BARRIER for the action alone: {WEAKER})",
        ),
        (PIVOT, "KEY: once per key"),
    ],
    ids=["key", "none", "barrier", "weaker", "no undo"],
)
def test_what_is_done_with_a_key(step: str, key: str) -> None:
    """Promise: a step promises what the weakest of its calls promises, and that is said."""
    assert shown(step)[1].key == key


@pytest.mark.parametrize(
    ("step", "warned_of"),
    [
        (CLOSE, {}),
        (HOLD, {}),
        (f"{PIVOT} {BARRIER}", {}),
        (PIVOT, {"steps[0].guarantee": "Pay has neither a barrier nor"}),
        (f"{CLOSE} {NONE}", {"steps[0].guarantee": "Pay promises nothing about repeated calls"}),
        (f"{PAY} compensation {call('Close', NONE)}", {"steps[0].guarantee": "Close promises nothing about"}),
        (f"{READ_ONLY} {NONE}", {}),
        (BOOK, {"steps[0].compensation": "if Book doesn't answer, a person has to find out whether it happened"}),
        (f"{BOOK} settle_delay {{ seconds: 8 }}", {}),
        (f"{BOOK} on_unknown: ON_UNKNOWN_PARK", {}),
        (f"{BOOK} compensation {call('Cancel', 'by_key: true')}", {}),
    ],
)
def test_what_to_be_warned_of(step: str, warned_of: dict[str, str]) -> None:
    """Promise: a pivot without barrier, calls without any promise, and an undo that needs what may never come."""
    found = {each.path: each.description for each in shown(step)[0].warnings}
    assert found.keys() == warned_of.keys()
    assert all(found[path].startswith(said) for path, said in warned_of.items())


def test_where_fields_come_from() -> None:
    """Promise: every sort of source is written as in Python, and what is left empty on purpose is said."""
    step = f"""
    name: "all" kind: STEP_KIND_READ_ONLY participant_input: "guest"
    action {{ method: "{SERVICE}/Everything" request {{
      literals {{ type_url: "x/{PACKAGE}.EverythingRequest" value: "\\n\\001a\\n\\001b0\\001J\\001k" }}
      bindings {{ target: "trip" input: "" }}
      bindings {{ target: "begin_time" input: "begin_time" }}
      bindings {{ target: "key" step_response {{ step: "hold" path: "hold_id" }} }}
      bindings {{ target: "saga_id" saga: SAGA_FIELD_SAGA_ID }}
      bindings {{ target: "action_key_uuid" saga: SAGA_FIELD_KEY_UUID }}
      bindings {{ target: "photo" default_value {{}} }} }} }}
    """
    _, found = shown(step, beside=f"steps {{ {HOLD} }}")
    assert found.participant == "chosen by input.guest"
    assert list(found.action.fields) == [
        "action_key_uuid = saga.key_uuid",
        "begin_time = input.begin_time",
        "colour = COLOUR_RED",
        "key = hold.response.hold_id",
        'keys = ["k"]',
        "photo = (empty on purpose)",
        "saga_id = saga.id",
        "trip = input",
        'wishes = ["a", "b"]',
    ]
