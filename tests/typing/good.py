"""Everything that a saga's author writes, done right: mypy and pyright, both strict, have nothing to say about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import assert_type

import grpc
from grpc import StatusCode

from amends import (
    Announcer,
    Codes,
    Committed,
    Compensated,
    CompensationFailed,
    CompensationFailurePolicy,
    Guarantee,
    Method,
    NotDone,
    OnUnknown,
    ParticipantServer,
    Rejected,
    Retry,
    Saga,
    SagaClient,
    SagaFailure,
    SagaHandle,
    Step,
    StepInterceptor,
    SyncAnnouncer,
    SyncStepInterceptor,
    TryLater,
    method,
)
from amends.testing import End, FaultMatrix, Trait
from amends.v1 import saga_pb2
from typed.v1.typed_pb2 import (
    CABIN_FIRST,
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
    Money,
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

trip = Saga(
    "trip",
    input=PlanTrip,
    output=TripPlanned,
    timeout=timedelta(minutes=5),
    compensation_failure_policy=CompensationFailurePolicy.HALT,
)
wanted = trip.input
quote = trip.read_only("quote", Quote(destination=wanted.destination))
book = trip.step(
    "book",
    Book(
        destination=wanted.destination,
        seats=wanted.seats,
        limit=quote.response.price,
        tags=wanted.tags,
        cabin=CABIN_FIRST,
        window=False,
        notes={"diet": "none"},
        email=wanted.passenger.email,
    ),
    timeout=timedelta(seconds=2),
    retry=Retry(initial_delay=timedelta(milliseconds=50), maximum_refusal_count=3),
    codes=Codes(added_rejected=[StatusCode.ABORTED], already_done={StatusCode.ALREADY_EXISTS}),
    idempotency_window=timedelta(days=7),
    participant="travel",
    guarantee=Guarantee.KEY,
    on_unknown=OnUnknown.PARK,
    settle_delay=timedelta(minutes=1),
    at_most_once=True,
)
book.compensated_by(CancelBooking(booking_id=book.response.booking_id, reason=trip.failure.reason))
book.looked_up_by(FindBooking(action_key=trip.action_key), guarantee=Guarantee.KEY)
charge = trip.step("charge", Charge(amount=Money(currency_code="EUR", units=9), reference=trip.key_uuid), after=())
charge.compensated_by(
    Refund(charge_id=charge.response.charge_id),
    by_key=True,
    timeout=timedelta(seconds=1),
    guarantee=Guarantee.NONE,
    idempotency_window=timedelta(days=7),
    nothing_to_undo_codes=[StatusCode.NOT_FOUND],
)
issue = trip.pivot(
    "issue",
    Issue(booking_id=book.response.booking_id),
    after=(book, charge),
    at_most_once=True,
    participant=wanted.passenger.name,
)
mail = trip.retriable("mail", Mail(email=book.request.email, template="ticket"))
sorry = trip.on_compensated("sorry", Mail(email=wanted.passenger.email, template=trip.failure.message))
trip.on_compensated("tell", Mail(template=trip.failure.step), after=[sorry])
trip.output(TripPlanned)(ticket_id=issue.response.ticket_id, charge_id=charge.response.charge_id)

errand = Saga("errand", input=QuoteRequest)
errand.read_only("quote", Quote(destination=errand.input.destination))

assert_type(trip, Saga[PlanTrip, TripPlanned])
assert_type(errand, Saga[QuoteRequest, None])
assert_type(wanted, PlanTrip)
assert_type(wanted.passenger.name, str)
assert_type(book, Step[BookRequest, BookResponse])
assert_type(book.request, BookRequest)
assert_type(sorry, Step[MailRequest, MailResponse])
assert_type(trip.failure.status_code, str)
assert_type(book.response.price, Money)
assert_type(book.response.price.units, int)


def takes_a_method(of_book: Method[..., BookRequest, BookResponse]) -> None:
    """A method can be passed on without the parameters of its request."""


takes_a_method(Book)


async def start_and_wait(client: SagaClient) -> str:
    """The whole life of a saga, as its starter sees it."""
    handle = await client.start(trip, PlanTrip(destination="Oslo"), saga_id="trip-1", labels={"team": "travel"})
    assert_type(handle, SagaHandle[TripPlanned])
    match await handle.wait(timedelta(seconds=30)):
        case Committed(output=planned):
            assert_type(planned, TripPlanned)
            return planned.ticket_id
        case Compensated(reason=why, failure=failure):
            assert_type(why, str)
            assert_type(failure, SagaFailure)
            return why
        case CompensationFailed(dead_letters=left):
            return left[0].last_error


async def follow(client: SagaClient) -> None:
    """Results, sagas without an output, and sagas that somebody else started."""
    assert_type(await client.handle(trip, "trip-1").result(), TripPlanned)
    assert_type(await (await client.start(errand, QuoteRequest())).result(), None)
    assert_type(await client.get("trip-1"), saga_pb2.Saga)
    async for saga in client.list(states=[saga_pb2.Saga.STATE_RUNNING], page_size=10):
        assert_type(saga, saga_pb2.Saga)


def refuse(sold_out: bool) -> str:
    """The ways to say no."""
    try:
        if sold_out:
            raise Rejected("sold out", reason="SOLD_OUT", code=StatusCode.OUT_OF_RANGE)
        raise TryLater("stocktaking", timedelta(seconds=3))
    except NotDone as no:
        return str(no)


def serve(own: list[grpc.aio.ServerInterceptor]) -> None:
    """The ways to serve."""
    ParticipantServer("travel", coordinator="localhost:7070", threads=4, interceptors=own)
    grpc.aio.server(interceptors=[*own, StepInterceptor("travel", capacity=4)])
    grpc.server(ThreadPoolExecutor(), interceptors=[SyncStepInterceptor("travel", capacity=4)])
    announcer = Announcer(
        "travel", coordinator="localhost:7070", address="10.0.0.7:7101", services=["travel.v1.Travel"]
    )
    with SyncAnnouncer(announcer) as running:
        running.announced(timeout_s=5)


class TripWorld:
    """What a fault matrix is given beside a saga and its input."""

    async def __aenter__(self) -> TripWorld:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def participants(self) -> Mapping[str, Sequence[object]]:
        """Who takes part."""
        return {"travel": []}

    async def check(self, end: End) -> None:
        """What must be true in the end."""
        assert isinstance(end, Committed | Compensated)


def survive() -> FaultMatrix[PlanTrip, TripPlanned]:
    """A matrix has its saga's types."""
    return FaultMatrix(trip, input=PlanTrip(), world=TripWorld, forbid=[Trait.PARKED])
