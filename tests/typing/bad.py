"""Planted mistakes: each line that ends in a mark is wrong, and both type checkers say so, there and nowhere else.

It is never run and left out of `make check`; test_typing.py hands it to the checkers.
"""

from __future__ import annotations

from grpc import StatusCode

from amends import (
    Codes,
    Committed,
    OnUnknown,
    ParticipantServer,
    Rejected,
    Saga,
    SagaClient,
    SyncStepInterceptor,
    method,
)
from amends.testing import FaultMatrix
from tests.typing.good import (
    Book,
    CancelBooking,
    Charge,
    Issue,
    Mail,
    Quote,
    TripWorld,
    book,
    errand,
    quote,
    trip,
    wanted,
)
from typed.v1.typed_pb2 import (
    BookResponse,
    CancelBookingRequest,
    ChargeRequest,
    FindBookingRequest,
    PlanTrip,
    QuoteResponse,
)
from typed.v1.typed_pb2_grpc import TravelServiceServicer

trip.step("a", Book(destination=wanted.seats))  # M1 a number into a text
trip.step("b", Book(destinatoin=wanted.destination))  # M2 no such target
trip.step("c", Book(destination=wanted.destinatoin))  # M3 no such source
trip.step("d", Charge(amount=wanted.destination))  # M4 a text into a message
trip.step("e", Issue(booking_id=book.response.nothing))  # M5 no such field of a response
method(TravelServiceServicer.Book, ChargeRequest, BookResponse)  # M6 the method takes another request
trip.step("f", Charge(amount=wanted.passenger))  # M7 another message
trip.step("g", Book(cabin=wanted.seats))  # M8 a number into an enum
trip.step("h", Book(wanted.destination))  # M9 no field named
book.looked_up_by(Quote(destination="Oslo"))  # M10 a lookup answers what its action answers
trip.output(QuoteResponse)(price=quote.response.price)  # M11 another output than the saga's
errand.output(QuoteResponse)(price=quote.response.price)  # M12 an output that the saga doesn't have
book.compensated_by(CancelBookingRequest(booking_id="x"))  # M13 a message where a call is wanted
trip.pivot("i", Book)  # M14 a method that nobody called
trip.retriable("j", Mail(email="a@b.example"), timeout=5)  # M15 a number where a duration is wanted
Saga("k", input="PlanTrip")  # M16 a name where a class is wanted
trip.step("l", CancelBooking(booking_id=b"x"))  # M17 bytes into a text
trip.step("m", Charge(), after=book)  # M23 one step where several are wanted
trip.step("n", Charge(), after=("book",))  # M24 a name where a step is wanted
trip.retriable("o", Mail(template=trip.failure.cause))  # M25 no such part of a failure
trip.step("p", Book(seats=trip.failure.reason))  # M26 a text into a number
trip.on_compensated("q", Mail)  # M27 a method that nobody called
trip.pivot("r", Issue(), on_unknown=OnUnknown.PARK)  # M28 a pivot is never guessed
Codes(added_rejected=["ABORTED"])  # M29 a name where a code is wanted
trip.on_compensated("s", Mail(template=trip.failure))  # M30 a whole failure into a text
book.compensated_by(CancelBooking(), by_key=True, nothing_to_undo_codes=StatusCode.ABORTED)  # M31 one code

trip.step("t", Charge(), participant=wanted.seats)  # M32 a number where a participant's name is wanted

Rejected("no", code="NOT_FOUND")  # M33 a name where a code is wanted
ParticipantServer("x", coordinator="y:1", interceptors=[SyncStepInterceptor("x")])  # M34 a synchronous server's

FaultMatrix(trip, input=FindBookingRequest(), world=TripWorld)  # M35 another input
FaultMatrix(trip, input=PlanTrip(), world=Saga)  # M36 what is no world


async def start_and_wait(client: SagaClient) -> None:
    """Mistakes of a saga's starter."""
    await client.start(trip, FindBookingRequest())  # M18 another input
    handle = await client.start(trip, PlanTrip(), saga_id=7)  # M19 an id that is no text
    match await handle.wait():
        case Committed(output=planned):
            await client.get(planned.booking_id)  # M20 no such field of the output
        case end:
            await client.get(end.output)  # M21 only a committed saga has an output
    await client.get((await handle.result()).ticket)  # M22 no such field of the result
