"""Compiled definitions: what is built from a saga, and what can't be."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.core.definition import StoredDefinition
from amends_coordinator.core.ids import DefinitionVersion, Instant, StepName
from amends_coordinator.core.states import Direction
from amends_coordinator.definitions.catalog import Catalog
from amends_coordinator.definitions.compiled import BindingError, PayloadError, compile_definition
from amends_coordinator.definitions.errors import DamagedPayloadError, DescriptorError
from amends_coordinator.definitions.keys import key_uuid
from definitions_test.v1 import lodging_pb2, money_pb2
from tests.unit.definitions.samples import (
    PACKAGE,
    SERVICE,
    TRIP,
    compiled,
    definition,
    intent,
    registered,
    saga,
    stored,
)

if TYPE_CHECKING:
    from amends_coordinator.definitions.compiled import CompiledDefinition

BOOK, PAY, TELL = StepName("book"), StepName("pay"), StepName("tell")


def everything(bindings: str, *, literals: str = "") -> str:
    """A definition with one read-only step whose request has fields of every form."""
    return f"""
    name: "all" input_type: "{PACKAGE}.Trip"
    steps {{ name: "all" kind: STEP_KIND_READ_ONLY action {{
      method: "{SERVICE}/Everything" request {{ {literals} {bindings} }} }} }}
    """


def built(trip: lodging_pb2.Trip, bindings: str, *, literals: str = "") -> lodging_pb2.EverythingRequest:
    """What the action of `everything` is called with."""
    of = compiled(everything(bindings, literals=literals))
    bound = of.bind(saga(of, trip.SerializeToString()), StepName("all"), Direction.ACTION)
    return lodging_pb2.EverythingRequest.FromString(bound)


def test_fields_of_every_form_are_copied() -> None:
    """Promise: bytes in, bytes out: whatever a field holds arrives at its target."""
    trip = lodging_pb2.Trip(
        guest="Ada",
        nights=3,
        wishes=["sea", "sun"],
        scores={"a": 1, "b": -2},
        photo=b"\0\xff",
        floor=0,
        price=money_pb2.Money(units=5, currency="CHF"),
        colour=lodging_pb2.COLOUR_RED,
        extras={"tea": money_pb2.Money(units=1)},
        instalments=[money_pb2.Money(units=2)],
    )
    trip.begin_time.seconds = 9
    same = ("wishes", "scores", "extras", "instalments", "colour", "begin_time", "photo", "floor")
    bindings = "".join(f'bindings {{ target: "{name}" input: "{name}" }}' for name in same)
    request = built(
        trip,
        bindings
        + 'bindings { target: "trip" input: "" }'
        + 'bindings { target: "price.units" input: "nights" }'
        + 'bindings { target: "price.currency" input: "price.currency" }',
    )
    expected = lodging_pb2.EverythingRequest(
        wishes=["sea", "sun"],
        scores={"a": 1, "b": -2},
        extras={"tea": money_pb2.Money(units=1)},
        photo=b"\0\xff",
        instalments=[money_pb2.Money(units=2)],
        trip=trip,
        colour=lodging_pb2.COLOUR_RED,
        floor=0,
        price=money_pb2.Money(units=3, currency="CHF"),
    )
    expected.begin_time.seconds = 9
    assert request == expected


def test_an_absent_source_leaves_its_target_alone() -> None:
    """Promise: what isn't set is not made up: no empty messages, no zero where there was nothing."""
    bindings = """
    bindings { target: "floor" input: "floor" } bindings { target: "price.units" input: "price.units" }
    bindings { target: "begin_time" input: "begin_time" } bindings { target: "key" input: "card" }
    """
    assert built(lodging_pb2.Trip(), bindings) == lodging_pb2.EverythingRequest()
    assert built(lodging_pb2.Trip(floor=0), bindings).HasField("floor")


def test_bindings_are_written_over_literals() -> None:
    """Promise: literals stand where nothing is bound or nothing is there; lists and maps are replaced, not extended."""
    literal = lodging_pb2.EverythingRequest(
        wishes=["literal"],
        scores={"literal": 1},
        key="literal",
        floor=7,
        photo=b"kept",
        saga_id="cleared",
        instalments=[money_pb2.Money(units=1)],
    )
    content = "".join(f"\\x{byte:02x}" for byte in literal.SerializeToString())
    request = built(
        lodging_pb2.Trip(wishes=["bound"], guest="Ada"),
        """
        bindings { target: "wishes" input: "wishes" } bindings { target: "scores" input: "scores" }
        bindings { target: "key" input: "guest" } bindings { target: "floor" input: "floor" }
        bindings { target: "saga_id" default_value {} } bindings { target: "instalments" input: "instalments" }
        """,
        literals=f'literals {{ type_url: "x/{PACKAGE}.EverythingRequest" value: "{content}" }}',
    )
    assert request == lodging_pb2.EverythingRequest(wishes=["bound"], key="Ada", floor=7, photo=b"kept")


def test_the_sagas_own_data() -> None:
    """S2: the keys in a request are the keys in the metadata, in both forms and all directions."""
    names = ("SAGA_ID", "KEY", "ACTION_KEY", "ACTION_KEY_UUID")
    bindings = "".join(f'bindings {{ target: "{name.lower()}" saga: SAGA_FIELD_{name} }}' for name in names)
    of = compiled(f"""
    name: "keys" input_type: "{PACKAGE}.Trip"
    steps {{ name: "all" action {{ method: "{SERVICE}/Everything" }}
      compensation {{ method: "{SERVICE}/Everything" request {{ {bindings} }} }} }}
    """)
    running = saga(of, b"", intent("all", b"", b""))
    request = lodging_pb2.EverythingRequest.FromString(of.bind(running, StepName("all"), Direction.COMPENSATION))
    assert (request.saga_id, request.key, request.action_key) == (
        "trip-1",
        "trip-1/all/compensation",
        "trip-1/all/action",
    )
    assert request.action_key_uuid == key_uuid("default", "trip-1/all/action")


def test_keys_as_uuids_depend_on_the_ledger() -> None:
    """S2: staging and production may share a participant; their keys differ, each the same for ever."""
    assert key_uuid("default", "order-1042/reserve/action") == "cfd066db-eccf-5434-9af2-5a87dc4794d9"
    definitions = [
        Catalog(ledger_name=name).compiled(stored(registered(definition()))) for name in ("default", "staging")
    ]
    response = lodging_pb2.BookResponse(booking_id="b").SerializeToString()
    requests = [
        lodging_pb2.PayRequest.FromString(of.bind(saga(of, b"", intent("book", b"", response)), PAY, Direction.ACTION))
        for of in definitions
    ]
    expected = [key_uuid(name, "trip-1/pay/action") for name in ("default", "staging")]
    assert [request.key_uuid for request in requests] == expected
    assert len(set(expected)) == 2


def test_compensation_and_lookup_are_built_from_what_the_action_left() -> None:
    """S4: a compensation names what its action made; without the response it is not built with an empty id."""
    of = compiled()
    asked = lodging_pb2.BookRequest(guest="Ada", nights=2, invoice="ACME").SerializeToString()
    answered = lodging_pb2.BookResponse(booking_id="b-7", guest="A. Lovelace").SerializeToString()
    known, unknown = saga(of, b"", intent("book", asked, answered)), saga(of, b"", intent("book", asked, None))
    cancel = lodging_pb2.CancelRequest.FromString(of.bind(known, BOOK, Direction.COMPENSATION))
    assert cancel == lodging_pb2.CancelRequest(booking_id="b-7", guest="A. Lovelace", nights=2, invoice="ACME")
    find = lodging_pb2.FindBookingRequest.FromString(of.bind(unknown, BOOK, Direction.LOOKUP))
    assert find == lodging_pb2.FindBookingRequest(guest="Ada")
    with pytest.raises(BindingError, match="the response of step book, which never arrived"):
        of.bind(unknown, BOOK, Direction.COMPENSATION)
    with pytest.raises(BindingError, match="step pay of definition trip has no compensation"):
        of.bind(known, PAY, Direction.COMPENSATION)


def test_by_key_a_compensation_is_built_without_the_response() -> None:
    """S4: a compensation that finds its work by key can be called although the action never answered."""
    written = definition()
    written.steps[0].compensation.method, written.steps[0].compensation.by_key = f"{SERVICE}/Cancel", True
    of = compile_definition(stored(registered(written)))
    asked = lodging_pb2.BookRequest(guest="Ada", nights=2).SerializeToString()
    request = of.bind(saga(of, b"", intent("book", asked, None)), BOOK, Direction.COMPENSATION)
    assert lodging_pb2.CancelRequest.FromString(request) == lodging_pb2.CancelRequest(nights=2)


def test_the_output_is_built_from_the_steps() -> None:
    """Promise: the output says what the steps answered; a definition without one has none."""
    of = compiled()
    done = saga(
        of,
        b"",
        intent("book", b"", lodging_pb2.BookResponse(booking_id="b-7").SerializeToString()),
        intent("pay", b"", lodging_pb2.PayResponse(receipt_id="r-8").SerializeToString()),
    )
    output = of.output(done)
    assert output is not None
    assert lodging_pb2.Booked.FromString(output) == lodging_pb2.Booked(
        booking_id="b-7", receipt_id="r-8", saga_id="trip-1"
    )
    with pytest.raises(DamagedPayloadError, match="the saga's output can't be built"):
        of.output(saga(of, b"", intent("book", b"", b"\xff")))
    without = compiled(everything(""))
    assert without.output_type is None
    assert without.output(saga(without, b"")) is None


def test_a_waived_step_leaves_its_part_of_the_output_empty() -> None:
    """S3, L1: a step that a named person waived has no response, and holds up no commit."""
    of = compiled()
    booked = intent("book", b"", lodging_pb2.BookResponse(booking_id="b-7").SerializeToString())
    for waived in ((intent("pay", b"", None),), ()):
        output = of.output(saga(of, b"", booked, *waived))
        assert output is not None
        assert lodging_pb2.Booked.FromString(output) == lodging_pb2.Booked(booking_id="b-7", saga_id="trip-1")
    with pytest.raises(
        BindingError, match="the request of step pay, action can't be built: it copies from the respons"
    ):
        of.bind(saga(of, b"", intent("book", b"", None)), PAY, Direction.ACTION)


def test_stored_bytes_that_do_not_parse_are_no_fault_of_the_binding() -> None:
    """L2: garbage in the ledger or from a participant ends in a defined outcome, never in a traceback."""
    of = compiled()
    with pytest.raises(DamagedPayloadError, match="the request of step book, action can't be built"):
        of.bind(saga(of, b"\xff"), BOOK, Direction.ACTION)
    with pytest.raises(BindingError, match="step book was never called"):
        of.bind(saga(of, b""), BOOK, Direction.LOOKUP)
    assert of.parser(BOOK, Direction.ACTION)(lodging_pb2.BookResponse(guest="Ada").SerializeToString())
    assert of.parser(BOOK, Direction.COMPENSATION)(b"")
    assert not of.parser(BOOK, Direction.LOOKUP)(b"\x0a\x01\xff"), "broken UTF-8"
    assert not of.parser(PAY, Direction.ACTION)(b"\0")


def test_types_of_calls() -> None:
    """Promise: `GetSaga` names the type of every payload."""
    of = compiled()
    assert of.request_type(BOOK, Direction.LOOKUP) == f"{PACKAGE}.FindBookingRequest"
    assert of.response_type(BOOK, Direction.LOOKUP) == f"{PACKAGE}.BookResponse"
    assert (of.input_type, of.output_type) == (f"{PACKAGE}.Trip", f"{PACKAGE}.Booked")
    with pytest.raises(KeyError):
        of.request_type(TELL, Direction.COMPENSATION)


def test_an_input_of_another_type_is_refused() -> None:
    """Promise: a payload that doesn't parse, or is of another type, is refused and nothing is stored."""
    of = compiled()
    with pytest.raises(PayloadError, match=r"takes a definitions_test\.v1\.Trip, not a 'definitions_test\.v1\.Money'"):
        of.canonical_input(f"{PACKAGE}.Money", b"")
    with pytest.raises(PayloadError, match=r"the bytes don't parse as definitions_test\.v1\.Trip"):
        of.canonical_input(f"{PACKAGE}.Trip", b"\xff")


@given(st.dictionaries(st.text(), st.integers(-(2**31), 2**31 - 1), max_size=30))
def test_equal_sagas_give_equal_bytes(scores: dict[str, int]) -> None:
    """S9: equal inputs have equal bytes, however their maps were written; every attempt sends the same request."""
    backwards = lodging_pb2.Trip(guest="Ada", scores=dict(reversed(scores.items())))
    forwards = lodging_pb2.Trip(guest="Ada", scores=scores)
    of = EVERYTHING
    inputs = {of.canonical_input(of.input_type, trip.SerializeToString()) for trip in (forwards, backwards)}
    assert len(inputs) == 1
    sent = {
        of.bind(saga(of, trip.SerializeToString()), StepName("all"), Direction.ACTION) for trip in (forwards, backwards)
    }
    assert len(sent) == 1
    request = lodging_pb2.EverythingRequest.FromString(sent.pop())
    assert request.scores == scores
    assert request.trip == forwards


EVERYTHING = compiled(everything('bindings { target: "scores" input: "scores" } bindings { target: "trip" input: "" }'))


def test_the_catalog_keeps_what_was_used_last() -> None:
    """L2: definitions in memory have a bound; what fell out is compiled again, to the same plan."""
    catalog = Catalog(capacity=2)
    definitions: list[StoredDefinition] = []
    for seconds in (1, 2, 3):
        written = definition()
        written.timeout.seconds = seconds
        definitions.append(stored(registered(written)))
    first, second, third = definitions
    kept = catalog.compiled(first)
    assert catalog.compiled(second).schema is kept.schema, "equal descriptors share a pool"
    assert catalog.compiled(first) is kept
    catalog.compiled(third)
    assert catalog.compiled(first) is kept
    assert catalog.plan(second) == compile_definition(second).plan


@dataclass(frozen=True)
class SlowToRead:
    """A stored definition whose content takes a while."""

    of: StoredDefinition
    asked: threading.Event
    may_go_on: threading.Event
    name: str = "slow"
    version: str = "later"

    @property
    def content(self) -> bytes:
        """The content, once it may be had."""
        self.asked.set()
        assert self.may_go_on.wait(timeout=30)
        return self.of.content


def test_nobody_waits_for_another_definition_to_be_compiled() -> None:
    """L2: the event loop asks for what is kept at every event, also while a large schema is compiled in a thread."""
    catalog = Catalog()
    kept = catalog.compiled(stored(registered(definition())))
    slow = SlowToRead(stored(registered(definition())), threading.Event(), threading.Event())
    compiling = threading.Thread(target=lambda: catalog.compiled(cast("StoredDefinition", slow)), daemon=True)
    compiling.start()
    assert slow.asked.wait(timeout=30)
    found: list[CompiledDefinition | None] = []
    asking = threading.Thread(target=lambda: found.append(catalog.find(kept.name, kept.version)), daemon=True)
    asking.start()
    asking.join(timeout=10)
    assert found == [kept]
    slow.may_go_on.set()
    compiling.join(timeout=30)
    assert catalog.find(slow.name, DefinitionVersion(slow.version)) is not None


@pytest.mark.parametrize(
    "content", [b"\xff", b"", pb.SagaDefinition(steps=[pb.Step(name="a")]).SerializeToString(), TRIP.encode()]
)
def test_a_stored_definition_of_another_kind_is_a_clear_error(content: bytes) -> None:
    """L2: a row that can't be read is an error with the definition's name, not a traceback of protobuf."""
    row = StoredDefinition(name="trip", version=DefinitionVersion("0" * 16), content=content, created_time=Instant(0))
    with pytest.raises(DescriptorError):
        compile_definition(row)
