"""References record which field was named, and refuse to be taken for values."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, cast

import pytest

from amends import AmendsError, NotAValueError, UnknownFieldError
from amends.references import source_of
from tests.unit.sdk_initiator.travel import Book, new_saga

# `Any`: a reference is anything but what the checkers take it for, and these tests use it in ways they would refuse.
USES: dict[str, Callable[[Any], object]] = {
    "bool": bool,
    "str": str,
    "f-string": lambda reference: f"{reference}",
    "format": lambda reference: format(reference, "5"),
    "int": int,
    "float": float,
    "len": len,
    "iteration": list,
    "membership": lambda reference: "x" in reference,
    "index": lambda reference: reference[0],
    "sum": lambda reference: reference + 1,
    "sum from the right": lambda reference: "order " + reference,
    "product": lambda reference: 2 * reference,
    "difference": lambda reference: reference - 1,
    "minus": lambda reference: -reference,
    "equality": lambda reference: reference == "x",
    "inequality": lambda reference: reference != "x",
    "order": lambda reference: reference < 3,
    "hash": lambda reference: {reference},
    "call": lambda reference: reference(),
    "assignment": lambda reference: setattr(reference, "name", "x"),
    "join": lambda reference: "".join(["a", *reference]),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_a_reference_is_not_a_value(use: Callable[[Any], object]) -> None:
    """Typed SDK: a definition can't silently be built from something that has no value yet."""
    reference = new_saga().input.passenger
    with pytest.raises(NotAValueError, match=r"saga.input.passenger: this is a reference, not a value") as caught:
        use(reference)
    assert isinstance(caught.value, AmendsError)


def test_a_reference_names_nested_fields() -> None:
    """Typed SDK: the path that was written is the path that is bound."""
    saga = new_saga()
    source = source_of(saga.input.passenger.email)
    assert source is not None
    assert (source.root, source.path) == ("input", ("passenger", "email"))
    assert repr(saga.input.passenger.email) == "<reference saga.input.passenger.email>"


def test_a_field_that_is_not_there_is_named_with_the_one_that_is_meant() -> None:
    """Typed SDK: without a checker the mistake is found on the same line."""
    wanted = cast("Any", new_saga().input)  # the checkers would refuse these lines
    with pytest.raises(UnknownFieldError, match=r"typed.v1.PlanTrip has no field 'destinatoin': did you mean 'destin"):
        _ = wanted.destinatoin
    with pytest.raises(UnknownFieldError, match=r"has no field 'HasField': its fields are: destination, seats"):
        wanted.HasField("limit")
    with pytest.raises(UnknownFieldError, match=r"saga.input.tags is of type repeated string: it has no field 'first'"):
        _ = wanted.tags.first


def test_python_may_ask_a_reference_what_it_can_do() -> None:
    """A debugger or a test runner that looks at a reference must not fail on it."""
    reference = new_saga().input.destination
    assert not hasattr(reference, "__fspath__")
    assert copy.copy(reference) is reference
    assert copy.deepcopy(reference) is reference
    assert source_of("a value") is None


def test_a_reference_inside_a_literal_is_refused() -> None:
    """Typed SDK: lists and maps are not assembled in a definition."""
    saga = new_saga()
    with pytest.raises(AmendsError, match=r"Book: tags is built from the reference saga.input.destination"):
        Book(tags=["x", saga.input.destination])
    with pytest.raises(AmendsError, match=r"Book: notes is built from the reference saga.input.destination"):
        Book(notes={"to": saga.input.destination})
