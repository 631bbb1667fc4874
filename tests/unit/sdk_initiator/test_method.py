"""`method` takes a generated servicer's method and checks it against its descriptor at once."""

from __future__ import annotations

from typing import Any, cast

import pytest

from amends import DefinitionError, method
from typed.v1.typed_pb2 import BookRequest, BookResponse, ChargeRequest, QuoteResponse, WatchRequest, WatchResponse
from typed.v1.typed_pb2_grpc import TravelServiceServicer


class Travel(TravelServiceServicer):
    """A participant's own class."""

    async def Book(self, request: BookRequest, context: object) -> BookResponse:
        """Books nothing."""
        raise NotImplementedError


def test_a_method_knows_its_full_name_and_types() -> None:
    """Typed SDK: the stub is the only place that knows a method's name."""
    book = method(TravelServiceServicer.Book, BookRequest, BookResponse)
    assert book.full_name == "typed.v1.TravelService/Book"
    assert (book.request, book.response) == (BookRequest, BookResponse)
    assert repr(book) == "<method typed.v1.TravelService/Book>"


def test_what_is_no_method_of_the_stub_is_refused_with_a_sentence() -> None:
    """Typed SDK: a wrong pairing ends on its own line, when the module is imported, not in a running saga."""
    anything = cast("Any", method)  # the checkers would refuse most of these
    servicer = TravelServiceServicer
    mistakes = [
        (
            (servicer.Book, ChargeRequest, BookResponse),
            r"takes typed.v1.BookRequest, not typed.v1.ChargeRequest",
        ),
        (
            (servicer.Book, BookRequest, QuoteResponse),
            r"answers typed.v1.BookResponse, not typed.v1.QuoteR",
        ),
        (
            (servicer.Book, "BookRequest", BookResponse),
            r"takes typed.v1.BookRequest: pass that generated cl",
        ),
        (
            (servicer.Book, BookRequest, BookResponse()),
            r"answers typed.v1.BookResponse: pass that gener",
        ),
        (
            (servicer.Watch, WatchRequest, WatchResponse),
            r"/Watch streams: only a method with one request",
        ),
        (
            (Travel.Book, BookRequest, BookResponse),
            r"'Travel.Book' of .*test_method isn't a generated",
        ),
        (
            (len, BookRequest, BookResponse),
            r"'len' of builtins isn't .*: pass that of the class",
        ),
        ((None, BookRequest, BookResponse), r"isn't a generated servicer's method"),
    ]
    for arguments, message in mistakes:
        with pytest.raises(DefinitionError, match=message):
            anything(*arguments)


def test_modules_that_do_not_belong_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed SDK: a stub that is newer than its messages is named, not guessed around."""
    monkeypatch.setattr(TravelServiceServicer.Book, "__qualname__", "TravelServiceServicer.Sell")
    with pytest.raises(DefinitionError, match=r"has no method TravelServiceServicer.Sell: .* generate both"):
        method(TravelServiceServicer.Book, BookRequest, BookResponse)
