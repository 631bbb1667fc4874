"""References, literals and keys become the template of a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from amends import Call, DefinitionError
from amends.v1 import saga_definition_pb2
from amends.v1.saga_definition_pb2 import Binding, DefaultValue, StepField
from tests.unit.sdk_initiator.travel import Book, CancelBooking, Charge, FindBooking, Issue, Quote, new_saga
from typed.v1.typed_pb2 import CABIN_FIRST, BookRequest, CancelBookingRequest, Money


def template(call: Call[Any, Any]) -> saga_definition_pb2.MessageTemplate:
    """The template of a call of whatever method."""
    return call.template.to_proto()


def bindings(call: Call[Any, Any]) -> list[Binding]:
    """The bindings of a call of whatever method."""
    return list(template(call).bindings)


def test_references_become_bindings() -> None:
    """Typed SDK: what was named is what is copied, whole messages and lists included."""
    saga = new_saga()
    quote = saga.read_only("quote", Quote(destination=saga.input.destination))
    call = Book(
        tags=saga.input.tags,
        destination=quote.request.destination,
        limit=quote.response.price,
        email=saga.input.passenger.email,
    )
    assert bindings(call) == [
        Binding(target="destination", step_request=StepField(step="quote", path="destination")),
        Binding(target="tags", input="tags"),
        Binding(target="limit", step_response=StepField(step="quote", path="price")),
        Binding(target="email", input="passenger.email"),
    ]


def test_a_whole_message_is_bound_with_an_empty_path() -> None:
    """Typed SDK: `saga.input` itself can fill a field of its type."""
    saga = new_saga()
    quote = saga.read_only("quote", Quote(destination="Oslo"))
    assert bindings(Charge(amount=quote.response.price))[0].step_response.path == "price"
    with pytest.raises(DefinitionError, match=r"limit is of type message typed.v1.Money, but saga.input is of "):
        Book(limit=cast("Money", saga.input))


def test_the_saga_and_its_keys_are_sources() -> None:
    """S2: a request may carry the key under which it is repeated."""
    saga = new_saga()
    fields = [
        (saga.id, saga_definition_pb2.SAGA_FIELD_SAGA_ID),
        (saga.key, saga_definition_pb2.SAGA_FIELD_KEY),
        (saga.key_uuid, saga_definition_pb2.SAGA_FIELD_KEY_UUID),
        (saga.action_key, saga_definition_pb2.SAGA_FIELD_ACTION_KEY),
        (saga.action_key_uuid, saga_definition_pb2.SAGA_FIELD_ACTION_KEY_UUID),
    ]
    for reference, field in fields:
        assert bindings(FindBooking(action_key=reference)) == [Binding(target="action_key", saga=field)]


def test_literals_of_every_kind_are_packed() -> None:
    """Typed SDK: literals are values of the field's own type, nested and repeated ones too."""
    call = Book(
        seats=2,
        cabin=CABIN_FIRST,
        tags=["a", "b"],
        window=False,
        limit=Money(currency_code="EUR", units=9),
        notes={"b": "2", "a": "1"},
        certainty=0.5,
        letter=b"\x00\xff",
        telephone="1",
    )
    packed = BookRequest()
    assert template(call).literals.Unpack(packed)
    assert packed == BookRequest(
        seats=2,
        cabin=CABIN_FIRST,
        tags=["a", "b"],
        window=False,
        limit=Money(currency_code="EUR", units=9),
        notes={"a": "1", "b": "2"},
        certainty=0.5,
        letter=b"\x00\xff",
        telephone="1",
    )
    assert packed.HasField("window")
    assert bindings(call) == []


def test_an_explicit_empty_value_is_said_so() -> None:
    """A compensation's field that is given as empty is not filled from a field of the same name."""
    packed, call = CancelBookingRequest(), CancelBooking(booking_id="b", reason="")
    assert bindings(call) == [Binding(target="reason", default_value=DefaultValue())]
    assert template(call).literals.Unpack(packed)
    assert packed == CancelBookingRequest(booking_id="b")
    for empty in (Book(seats=0), Book(tags=[]), Book(notes={}), Book(limit=None), Book(window=None)):
        assert [binding.WhichOneof("source") for binding in bindings(empty)] == ["default_value"]
        assert not template(empty).HasField("literals")
    # Where absence can be told from emptiness, the empty value is a value.
    for present in (Book(window=False), Book(email=""), Book(limit=Money())):
        assert bindings(present) == []
        assert template(present).HasField("literals")


def test_the_order_of_arguments_does_not_matter() -> None:
    """One definition has one content: what is written in another order is not another version."""
    saga = new_saga()
    one = Book(destination=saga.input.destination, seats=saga.input.seats, notes={"a": "1", "b": "2"}, tags=[])
    other = Book(tags=[], notes={"b": "2", "a": "1"}, seats=saga.input.seats, destination=saga.input.destination)
    assert template(one).SerializeToString(deterministic=True) == template(other).SerializeToString(deterministic=True)


def test_what_a_field_cannot_take_is_refused_with_a_sentence() -> None:
    """Typed SDK: without a checker each mistake is found on its line, and the message says what would be right."""
    saga = new_saga()
    book, issue, charge = (cast("Any", each) for each in (Book, Issue, Charge))  # the checkers would refuse these
    mistakes: list[tuple[Callable[[], object], str]] = [
        (
            lambda: book(destination=saga.input.seats),
            r"destination is of type string, but saga.input.seats is of",
        ),
        (lambda: book(destination=3), r"Book: destination is of type string, not this int"),
        (lambda: book(seats="many"), r"Book: seats is of type integer, not this str"),
        (lambda: book(seats=2**40), r"Book: seats is of type integer, not this int"),
        (lambda: charge(amount=saga.input.destination), r"amount is of type message typed.v1.Money, but saga.in"),
        (
            lambda: book(tags=saga.input.destination),
            r"tags is of type repeated string, but saga.input.dest",
        ),
        (lambda: book(cabin=saga.input.seats), r"cabin is of type enum typed.v1.Cabin, but saga.input.se"),
        (lambda: book(notes=saga.input.tags), r"notes is of type map from string to string, but saga"),
        (lambda: book(letter=saga.input.destination), r"letter is of type bytes, but saga.input.destination"),
        (lambda: issue("b"), r"takes its fields by name: write field=value, there are 1 without a name"),
        (lambda: issue(booking="b"), r"typed.v1.IssueRequest has no field 'booking': did you mean 'booking_id'\?"),
        (lambda: book(email="a", telephone="1"), r"email and telephone exclude each other \(oneof notice\): give one"),
    ]
    for mistake, message in mistakes:
        with pytest.raises(DefinitionError, match=message):
            mistake()
