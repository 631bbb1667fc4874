"""The builder refuses at once what can't be a saga, each with a sentence that says what would be right."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest
from grpc import StatusCode

from amends import Codes, DefinitionError, Retry, Saga
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
from typed.v1.typed_pb2_grpc import TravelServiceServicer


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


def test_what_a_step_is_given_is_a_call() -> None:
    """Not the method alone, not the generated function, not a message: what is easily given instead."""
    trip = new_saga()
    step = cast("Any", trip.step)  # the checkers would refuse them
    refused(r"step 'a' is given the method typed\.v1\.TravelService/Book without its request", lambda: step("a", Book))
    refused(r"step 'a' is given <function TravelServiceServicer\.Book", lambda: step("a", TravelServiceServicer.Book))
    refused(r"step 'a' is given a message: call a method\(\) with the fields", lambda: step("a", BookRequest()))
    book = cast("Any", trip.step("b", Book()))
    refused(r"the lookup of step 'b' is given the method", lambda: book.looked_up_by(FindBooking))
    refused(r"the compensation of step 'b' is given the method", lambda: book.compensated_by(CancelBooking))
    refused(r"saga 'x': input is a message: pass its class, PlanTrip", lambda: cast("Any", Saga)("x", input=PlanTrip()))


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
    refused(r"step 'b': settle_delay is 0", lambda: trip.step("b", Book(), settle_delay=timedelta()))
    refused(r"step 'b': idempotency_window is -1", lambda: trip.step("b", Book(), idempotency_window=-soon))
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


def test_steps_wait_for_what_they_are_told_to() -> None:
    """Every step begins after all that nothing follows yet, or after what `after=` names, in the order of the saga."""
    trip = new_saga()
    quote = trip.read_only("quote", Quote(destination="Oslo"))
    book = trip.step("book", Book(destination="Oslo"), after=[quote])
    charge = trip.step("charge", Charge(), after=(quote, quote))
    alone = trip.step("alone", Charge(), after=())
    issue = trip.pivot("issue", Issue(booking_id="b"))
    mail = trip.retriable("mail", Mail(), after=[issue])
    again = trip.retriable("again", Mail(), after=[issue])
    last = trip.read_only("last", Quote(), after=(again, mail))
    waits = [step.after for step in (quote, book, charge, alone, issue, mail, again, last)]
    assert waits == [(), (quote,), (quote,), (), (book, charge, alone), (issue,), (issue,), (mail, again)]
    assert trip.steps == (quote, book, charge, alone, issue, mail, again, last)


def test_only_steps_of_the_saga_can_be_waited_for() -> None:
    """A mistake in `after=` is found on its line."""
    trip = new_saga()
    book = trip.step("book", Book(destination="Oslo"))
    stranger = new_saga().step("book", Book())
    told = trip.on_compensated("told", Mail())
    add = cast("Any", trip.step)  # the checkers would refuse some of these
    refused(
        r"after names <compensatable step 'book' of .*, which isn't one of this",
        lambda: add("m", Charge(), after=[stranger]),
    )
    for after in (book, "book", ["book"], [None]):
        refused(
            r"step 'm': after=.* isn't possible: pass the steps themselves, for example after=\(book,\)",
            partial(add, "m", Charge(), after=after),
        )
    refused(
        r"step 'm' can't wait for <retriable step 'told' .* wait only for each other",
        lambda: add("m", Charge(), after=[told]),
    )
    refused(r"step 'n' can't wait for <comp", lambda: trip.on_compensated("n", Mail(), after=[book]))


def test_nothing_that_can_be_refused_runs_beside_the_point_of_no_return() -> None:
    """S6, V15: all that could still say no is over when the pivot, or without one a retriable step, begins."""
    trip = new_saga()
    book = trip.step("book", Book(destination="Oslo"))
    trip.read_only("quote", Quote(destination="Oslo"), after=())
    refused(
        r"step 'issue' is the point of no return, but nothing makes it wait for what can be refused: quote; name all",
        lambda: trip.pivot("issue", Issue(), after=[book]),
    )
    refused(r"'mail' is the point .*: book, quote; name all", lambda: trip.retriable("mail", Mail(), after=()))
    mail = trip.retriable("mail", Mail())
    refused(
        r"read-only step 'late' can be refused, .* beside 'mail'", lambda: trip.read_only("late", Quote(), after=[book])
    )
    late = trip.read_only("late", Quote(), after=[mail])
    beside = trip.retriable("beside", Mail(), after=[book, trip.steps[1]])
    assert late not in beside.after
    other = new_saga()
    other.step("book", Book())
    issue = other.pivot("issue", Issue())
    refused(
        r"retriable step 'mail' has to wait for the pivot 'issue'", lambda: other.retriable("mail", Mail(), after=())
    )
    refused(
        r"read-only step 'late' can be refused, .* beside 'issue'", lambda: other.read_only("late", Quote(), after=())
    )
    assert other.retriable("mail", Mail(), after=[other.read_only("check", Quote(), after=[issue])]).after != (issue,)


def test_what_side_by_side_steps_do_is_not_read_by_each_other() -> None:
    """A binding's source has certainly happened when it is read."""
    trip = new_saga()
    quote = trip.read_only("quote", Quote(destination="Oslo"))
    trip.step("book", Book(limit=quote.response.price), after=[quote])
    book = trip.steps[1]
    refused(
        r"step 'charge': reference is filled from book.response.booking_id, but step 'book' need not have happened by "
        r"then: steps that have are: quote",
        lambda: trip.step("charge", Charge(reference=book.response.booking_id), after=[quote]),
    )
    trip.step("charge", Charge(amount=quote.response.price), after=[book])


def test_steps_once_compensated_wait_for_each_other() -> None:
    """What is told when the saga has been rolled back stands apart, under names of the same saga."""
    trip = new_saga()
    book = trip.step("book", Book(destination="Oslo"))
    first = trip.on_compensated("first", Mail(email=book.request.email, template=trip.failure.message))
    second = trip.on_compensated("second", Mail(template=first.request.template))
    beside = trip.on_compensated("beside", Mail(), after=())
    assert [each.after for each in trip.steps_once_compensated] == [(), (first,), ()]
    assert trip.steps == (book,)
    refused(r"has a step 'first' already", lambda: trip.step("first", Book()))
    refused(r"'second' need not have happened", lambda: trip.step("x", Charge(reference=second.request.template)))
    refused(
        r"'second' need not", lambda: trip.on_compensated("x", Mail(template=second.request.template), after=[beside])
    )
    refused(r"step 'first' begins once the saga is compensated: nothing", lambda: first.compensated_by(CancelBooking()))
    look_up = cast("Any", first.looked_up_by)  # the checkers would refuse another response
    refused(r"step 'first' begins once the saga is compensated and is repeated", lambda: look_up(FindBooking()))
    refused(
        r"output of saga 'trip': ticket_id is filled from first",
        lambda: trip.output(TripPlanned)(ticket_id=first.request.template),
    )


def test_why_a_saga_rolls_back_is_said_only_when_it_does() -> None:
    """A reference to the failure stands where there is one."""
    trip = new_saga()
    book = trip.step("book", Book(destination="Oslo"))
    for reason, mistake in (
        (
            r"step 'x': template is filled from saga.failure.reason, but nothing has",
            lambda: trip.retriable("x", Mail(template=trip.failure.reason)),
        ),
        (
            r"lookup of step 'book': action_key is filled from saga.failure.step",
            lambda: book.looked_up_by(FindBooking(action_key=trip.failure.step)),
        ),
        (
            r"output of saga 'trip': ticket_id is filled from saga.failure",
            lambda: trip.output(TripPlanned)(ticket_id=trip.failure.status_code),
        ),
        (
            r"destination is of type string, not this FailureReference",
            lambda: cast("Any", Book)(destination=trip.failure),
        ),
    ):
        refused(reason, mistake)
    assert "name its step, reason" in repr(trip.failure)
    book.compensated_by(CancelBooking(booking_id=book.response.booking_id, reason=trip.failure.message))


def test_codes_are_a_participants_own() -> None:
    """S4: a code that gRPC makes by itself proves nothing, whoever says so."""
    listed = (
        r"which gRPC also makes by itself, .* can be named: INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, FAILED_PREC"
    )
    refused(rf"Codes: added_rejected has UNAVAILABLE, {listed}", lambda: Codes(added_rejected=[StatusCode.UNAVAILABLE]))
    refused(r"already_done has 'ABORTED': pass codes of grpc.S", lambda: Codes(already_done=cast("Any", ["ABORTED"])))
    lost = [StatusCode.DATA_LOSS]
    refused(
        r"DATA_LOSS can't be both added_rejected and already_done",
        lambda: Codes(added_rejected=lost, already_done=lost),
    )
    refused(r"DATA_LOSS can't be both .* removed_rej", lambda: Codes(added_rejected=lost, removed_rejected=lost))
    book = new_saga().step("book", Book(destination="Oslo"))
    ok = [StatusCode.OK]
    refused(
        r"compensation of step 'book': nothing_to_undo_codes has OK",
        lambda: book.compensated_by(CancelBooking(), nothing_to_undo_codes=ok),
    )


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
    refused(r"step 'book' is looked up by its own action", lambda: book.looked_up_by(Book()))
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
    codes = Codes(already_done=[StatusCode.ALREADY_EXISTS])
    unsettled = Saga("unsettled", input=PlanTrip)
    charge = unsettled.step("charge", Charge(), codes=codes, settle_delay=timedelta(seconds=1))
    charge.compensated_by(Refund(), by_key=True)
    refused(
        r"'charge' has a settle_delay and no lookup; .*; step 'charge' has already_done codes and no",
        unsettled.definition,
    )
    assert repr(trip) == "<saga 'trip': book, charge, mail>"
    assert repr(trip.steps[1]) == "<compensatable step 'charge' of saga 'trip'>"


def test_the_input_may_choose_a_steps_participant() -> None:
    """Several participants of one service: the step names one, or the field of the input that does."""
    trip = new_saga()
    trip.read_only("near", Quote(), participant="north")
    trip.read_only("far", Quote(), participant=trip.input.passenger.name)
    trip.output(TripPlanned)(ticket_id=trip.id)
    said = [(step.participant, step.participant_input) for step in trip.definition().steps]
    assert said == [("north", ""), ("", "passenger.name")]


def test_what_names_no_participant_is_refused() -> None:
    """Typed SDK: on the line that makes the mistake."""
    trip, other = new_saga(), new_saga()
    quote = trip.read_only("quote", Quote())
    given = [
        ("The North", r"step 'a': a participant can't be called 'The North'"),
        (7, r"a participant can't be called 7"),
        (trip.input.seats, r"participant is saga.input.seats, of type integer, but only a name or a string of the"),
        (trip.input, r"participant is saga.input, of type message typed.v1.PlanTrip"),
        (trip.id, r"participant is saga.saga_id, of type string, but only a name or a string of the saga's input"),
        (quote.request.destination, r"participant is quote.request.destination, of type string, but only"),
        (other.input.destination, r"participant is saga.input.destination of saga 'trip', but this is saga 'trip'"),
    ]
    for participant, why in given:
        refused(why, partial(trip.read_only, "a", Quote(), participant=cast("Any", participant)))
    assert [step.name for step in trip.steps] == ["quote"]


def test_a_change_makes_another_content() -> None:
    """A definition is versioned by its content: nothing is remembered that was changed since."""
    trip = whole_saga()
    before = trip.fingerprint()
    assert trip.fingerprint() == before == whole_saga().fingerprint()
    trip.steps[1].looked_up_by(FindBooking(action_key=trip.action_key))
    between = trip.fingerprint()
    trip.retriable("once_more", Mail(email="x"))
    assert len({before, between, trip.fingerprint()}) == 3
