"""The builder refuses at once what can't be a saga, each with a sentence that says what would be right."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest

from amends import DefinitionError, Retry, Saga
from tests.unit.sdk_initiator.travel import (
    Book,
    CancelBooking,
    Charge,
    FindBooking,
    Issue,
    Mail,
    Quote,
    Refund,
    new_saga,
    whole_saga,
)
from typed.v1.typed_pb2 import BookRequest, PlanTrip, QuoteResponse, TripPlanned


def refused(message: str, mistake: Callable[[], object]) -> None:
    """The mistake is refused with this message."""
    with pytest.raises(DefinitionError, match=message):
        mistake()


def test_names_are_checked() -> None:
    """Keys are joined from names, so a name that could collide is none."""
    anything = cast("Any", Saga)  # the checkers would refuse the last lines
    for name in ("", "Order", "1st", "a b", "ä", "a" * 65):
        refused(r"a saga can't be called", partial(Saga, name, input=PlanTrip))
    trip = new_saga()
    trip.step("book", Book(destination="Oslo"))
    refused(r"saga 'trip' has a step 'book' already", lambda: trip.step("book", Book(destination="Oslo")))
    for name in ("", "Book", "a-b", "a/b", "a" * 65):
        refused(r"a step can't be called", partial(trip.step, name, Book(destination="Oslo")))
    refused(r"saga 'x': input is 'PlanTrip': pass a generated message class", lambda: anything("x", input="PlanTrip"))
    refused(r"saga 'x': output is <class 'int'>", lambda: anything("x", input=PlanTrip, output=int))


def test_durations_are_checked() -> None:
    """A number is not silently taken for seconds."""
    anything = cast("Any", Saga)  # the checkers would refuse a number
    refused(r"saga 'x': timeout is 5: pass a timedelta", lambda: anything("x", input=PlanTrip, timeout=5))
    refused(r"saga 'x': timeout is 0:00:00: it has", lambda: Saga("x", input=PlanTrip, timeout=timedelta()))
    late, soon = timedelta(seconds=2), timedelta(seconds=1)
    refused(r"initial_delay 0:00:02 is longer than", lambda: Retry(initial_delay=late, maximum_delay=soon))
    refused(r"total_timeout is -1 day", lambda: Retry(total_timeout=-soon))
    refused(r"maximum_refusal_count is 0: it counts from 1", lambda: Retry(maximum_refusal_count=0))
    trip = new_saga()
    refused(r"step 'b': timeout is 0", lambda: trip.step("b", Book(destination="x"), timeout=timedelta()))
    book = trip.step("book", Book(destination="Oslo"))
    cancel = CancelBooking(booking_id="b")
    refused(r"the compensation of step 'book': timeout", lambda: book.compensated_by(cancel, timeout=-soon))


def test_the_order_of_kinds_is_checked() -> None:
    """S6: nothing that would have to be undone stands behind the point of no return."""
    trip = new_saga()
    trip.step("book", Book(destination="Oslo"))
    trip.pivot("issue", Issue(booking_id="b"))
    refused(r"step 'more' can't stand behind 'issue': .* nothing is undone", lambda: trip.step("more", Charge()))
    refused(r"step 'again' can't be a pivot too: 'issue' is the point", lambda: trip.pivot("again", Issue()))
    trip.retriable("mail", Mail(email="x"))
    trip.read_only("quote", Quote(destination="Oslo"))
    other = new_saga()
    other.retriable("mail", Mail(email="x"))
    refused(r"the pivot 'issue' has to come before the retriable step 'mail'", lambda: other.pivot("issue", Issue()))
    refused(r"step 'book' can't stand behind 'mail'", lambda: other.step("book", Book()))


def test_steps_follow_each_other() -> None:
    """Every step begins after all that nothing follows yet; in this release that is the step before."""
    trip = new_saga()
    quote = trip.read_only("quote", Quote(destination="Oslo"), after=())
    book = trip.step("book", Book(destination="Oslo"))
    issue = trip.pivot("issue", Issue(booking_id="b"), after=[book])
    assert (quote.after, book.after, issue.after) == ((), (quote,), (book,))
    assert trip.steps == (quote, book, issue)
    refused(r"step 'm': after=\(\) isn't possible: .* leave `after` out", lambda: trip.retriable("m", Mail(), after=()))
    refused(r"after=\(quote\) isn't possible", lambda: trip.retriable("m", Mail(), after=(quote,)))
    refused(r"after=\(book, issue\) isn't", lambda: trip.retriable("m", Mail(), after=(book, issue)))
    stranger = new_saga().step("issue", Issue())
    refused(r"after=\(issue\) isn't possible", lambda: trip.retriable("m", Mail(), after=(stranger,)))


def test_the_number_of_steps_is_limited() -> None:
    """Everything has a limit."""
    trip = new_saga()
    for number in range(64):
        trip.read_only(f"quote_{number}", Quote(destination="Oslo"))
    refused(r"saga 'trip' has 64 steps already", lambda: trip.read_only("one_more", Quote(destination="Oslo")))


def test_only_what_can_be_undone_has_a_compensation() -> None:
    """S6: a step behind the point of no return is never undone, and what changes nothing needs no undo."""
    trip = new_saga()
    quote = trip.read_only("quote", Quote(destination="Oslo"))
    book = trip.step("book", Book(destination="Oslo"))
    issue = trip.pivot("issue", Issue(booking_id="b"))
    mail = trip.retriable("mail", Mail(email="x"))
    cancel = CancelBooking(booking_id="b")
    refused(r"step 'quote' is read-only: it changes nothing", lambda: quote.compensated_by(cancel))
    refused(r"step 'issue' is the pivot: once it succeeded", lambda: issue.compensated_by(cancel))
    refused(r"step 'mail' is retriable: it lies behind", lambda: mail.compensated_by(cancel))
    assert book.compensated_by(cancel) is book
    refused(r"compensated by typed.v1.TravelService/CancelBooking already", lambda: book.compensated_by(Refund()))


def test_a_lookup_answers_what_its_action_answers() -> None:
    """A lookup's OK stands for the action's, so it has to have the same response."""
    trip = new_saga()
    quote = trip.read_only("quote", Quote(destination="Oslo"))
    book = trip.step("book", Book(destination="Oslo"))
    look_up = cast("Any", book.looked_up_by)  # the checkers would refuse the next line
    refused(r"step 'book' answers typed.v1.BookResponse, but its lookup .*/Quote answers", lambda: look_up(Quote()))
    refused(r"step 'quote' is read-only: there is nothing to look up", lambda: quote.looked_up_by(Quote()))
    assert book.looked_up_by(FindBooking(action_key=trip.action_key)) is book
    refused(r"is looked up by .*/FindBooking already", lambda: book.looked_up_by(FindBooking()))


def test_a_reference_stays_in_its_saga_and_in_time() -> None:
    """A binding's source has certainly happened when it is read."""
    trip, other = new_saga(), new_saga()
    foreign = other.step("book", Book(destination="Oslo"))
    refused(
        r"step 'a': destination is filled from saga.input.destination of saga 'trip', but this is saga 'trip': use",
        lambda: trip.step("a", Book(destination=other.input.destination)),
    )
    refused(
        r"from book.response.booking_id of saga", lambda: trip.pivot("a", Issue(booking_id=foreign.response.booking_id))
    )
    book = trip.step("book", Book(destination=trip.input.destination))
    charge = trip.step("charge", Charge(amount=book.response.price))
    refused(
        r"the compensation of step 'book': booking_id is filled from charge.response.charge_id, but step 'charge' need "
        r"not have happened by then: steps that have are: book",
        lambda: book.compensated_by(CancelBooking(booking_id=charge.response.charge_id)),
    )
    charge.compensated_by(Refund(charge_id=book.request.destination))


def test_the_output_is_said_once_and_right() -> None:
    """Typed SDK: an output has the saga's output type and comes from its own steps."""
    trip = new_saga()
    quote = trip.read_only("quote", Quote(destination="Oslo"))
    other = cast("Any", trip.output)  # the checkers would refuse another class
    refused(
        r"saga 'trip' has the output typed.v1.TripPlanned, not typed.v1.QuoteResponse", lambda: other(QuoteResponse)
    )
    refused(
        r"output of saga 'trip': ticket_id is filled from saga.key",
        lambda: trip.output(TripPlanned)(ticket_id=trip.key),
    )
    trip.output(TripPlanned)(ticket_id=trip.id, charge_id=quote.request.destination)
    refused(r"the output of saga 'trip' was said already", lambda: trip.output(TripPlanned)(ticket_id="x"))
    silent = Saga("silent", input=BookRequest)
    refused(r"saga 'silent' has no output: give it one", lambda: cast("Any", silent.output)(TripPlanned))


def test_an_incomplete_saga_says_all_that_is_missing() -> None:
    """All faults at once, before anything is sent."""
    refused(
        r"saga 'trip' isn't complete: it has no step; .*; it doesn't say how its output is built", new_saga().definition
    )
    trip = new_saga()
    trip.step("book", Book(destination="Oslo"))  # its annotation names a compensation
    trip.step("charge", Charge())
    trip.step("mail", Mail())
    trip.output(TripPlanned)(ticket_id=trip.id)
    refused(r"complete: step 'charge' can't be undone; .*; step 'mail' can't be undone", trip.definition)
    assert repr(trip) == "<saga 'trip': book, charge, mail>"
    assert repr(trip.steps[1]) == "<compensatable step 'charge' of saga 'trip'>"


def test_a_change_makes_another_content() -> None:
    """A definition is versioned by its content: nothing is remembered that was changed since."""
    trip = whole_saga()
    before = trip.fingerprint()
    assert trip.fingerprint() == before == whole_saga().fingerprint()
    trip.steps[1].looked_up_by(FindBooking(action_key=trip.action_key))
    between = trip.fingerprint()
    trip.retriable("once_more", Mail(email="x"))
    assert len({before, between, trip.fingerprint()}) == 3
