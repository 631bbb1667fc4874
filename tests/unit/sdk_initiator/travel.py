"""A saga over the small test service, and its methods, for the tests of the builder and the client."""

from __future__ import annotations

from amends import Saga, method
from typed.v1.typed_pb2 import (
    BookRequest,
    BookResponse,
    CancelBookingRequest,
    CancelBookingResponse,
    ChargeRequest,
    ChargeResponse,
    FindBookingRequest,
    IssueRequest,
    IssueResponse,
    MailRequest,
    MailResponse,
    PlanTrip,
    QuoteRequest,
    QuoteResponse,
    RefundRequest,
    RefundResponse,
    TripPlanned,
)
from typed.v1.typed_pb2_grpc import TravelServiceServicer

Quote = method(TravelServiceServicer.Quote, QuoteRequest, QuoteResponse)
Book = method(TravelServiceServicer.Book, BookRequest, BookResponse)
CancelBooking = method(TravelServiceServicer.CancelBooking, CancelBookingRequest, CancelBookingResponse)
FindBooking = method(TravelServiceServicer.FindBooking, FindBookingRequest, BookResponse)
Charge = method(TravelServiceServicer.Charge, ChargeRequest, ChargeResponse)
Refund = method(TravelServiceServicer.Refund, RefundRequest, RefundResponse)
Issue = method(TravelServiceServicer.Issue, IssueRequest, IssueResponse)
Mail = method(TravelServiceServicer.Mail, MailRequest, MailResponse)


def new_saga() -> Saga[PlanTrip, TripPlanned]:
    """A saga that nothing is said of yet."""
    return Saga("trip", input=PlanTrip, output=TripPlanned)


def whole_saga() -> Saga[PlanTrip, TripPlanned]:
    """A saga with a step of every kind, complete."""
    trip = new_saga()
    quote = trip.read_only("quote", Quote(destination=trip.input.destination))
    book = trip.step("book", Book(destination=trip.input.destination, seats=2, limit=quote.response.price))
    book.compensated_by(CancelBooking(booking_id=book.response.booking_id, reason="it fell through"))
    issue = trip.pivot("issue", Issue(booking_id=book.response.booking_id))
    trip.retriable("mail", Mail(email=trip.input.passenger.email, template="ticket"))
    trip.output(TripPlanned)(ticket_id=issue.response.ticket_id)
    return trip
