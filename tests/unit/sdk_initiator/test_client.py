"""The client against a real gRPC server: what it sends, what it survives, and how it tells how a saga ended."""

from __future__ import annotations

import asyncio
import gc
import socket
import uuid
import weakref
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any, cast

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2  # type: ignore[import-untyped]  # it ships no stubs
from opentelemetry import trace

from amends import (
    ClientClosedError,
    Committed,
    Compensated,
    CompensationFailed,
    CoordinatorError,
    CoordinatorUnavailableError,
    DefinitionError,
    FieldFault,
    InvalidDefinitionError,
    InvalidRequestError,
    NotACoordinatorError,
    NotYetError,
    OpenDeadLetter,
    OutputPurgedError,
    PastPointOfNoReturnError,
    Saga,
    SagaClient,
    SagaCompensated,
    SagaCompensationFailed,
    SagaFailure,
    SagaIdInUseError,
    SagaNotFoundError,
    UnreadableAnswerError,
    WaitTimeoutError,
    WrongMessageError,
)
from amends.v1 import saga_pb2
from amends.v1 import saga_service_pb2 as api
from tests.unit.sdk_initiator.coordinator import Refusal, TellingCoordinator, error_info, serving
from tests.unit.sdk_initiator.listed import CallingClient, ListedStarts, ListingClient
from tests.unit.sdk_initiator.travel import Quote, whole_saga
from typed.v1.typed_pb2 import BookRequest, PlanTrip, TripPlanned

State = saga_pb2.Saga
SOON = timedelta(seconds=20)
FAILURE = saga_pb2.Failure(step="issue", reason="SOLD_OUT", status_code="FAILED_PRECONDITION", message="no seats")


@pytest.fixture(params=["calls", "lists"])
async def client(request: pytest.FixtureRequest, coordinator: TellingCoordinator) -> AsyncIterator[SagaClient]:
    """A client of the coordinator, which is served now: starts go as calls, or all of them in lists."""
    kind = CallingClient if request.param == "calls" else ListingClient
    async with serving(coordinator, listed=ListedStarts(coordinator)) as address, kind(address) as client:
        yield client


@pytest.fixture
def dead_address() -> Iterator[str]:
    """An address at which nobody listens, and nobody else can begin to."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def ended(state: saga_pb2.Saga.State.ValueType, **fields: Any) -> saga_pb2.Saga:  # fields of the message
    """The saga of these tests at its end."""
    return saga_pb2.Saga(saga_id="trip-1", definition_name="trip", state=state, **fields)


def committed(output: TripPlanned) -> saga_pb2.Saga:
    """The saga of these tests, committed."""
    saga = ended(State.STATE_COMMITTED)
    saga.output.Pack(output)
    return saga


async def test_a_start_registers_once_and_pins_the_version(client: SagaClient, coordinator: TellingCoordinator) -> None:
    """A saga keeps the version it was started with, whatever is registered meanwhile."""
    trip = whole_saga()
    wanted = PlanTrip(destination="Oslo", notes={"b": "2", "a": "1"})
    await asyncio.gather(*(client.start(trip, wanted, saga_id=f"trip-{number}") for number in range(5)))
    await client.start(whole_saga(), wanted, saga_id="trip-1", labels={"team": "travel"})
    assert coordinator.methods() == ["RegisterSagaDefinition", *["StartSaga"] * 6]
    registration, request = coordinator.asked[0].request, coordinator.asked[-1].request
    assert isinstance(registration, api.RegisterSagaDefinitionRequest)
    assert registration.definition == trip.definition()
    assert isinstance(request, api.StartSagaRequest)
    assert (request.saga_id, request.definition_name, dict(request.labels)) == ("trip-1", "trip", {"team": "travel"})
    assert {request.definition_version} == coordinator.registered
    assert request.input.value == wanted.SerializeToString(deterministic=True)
    assert request.input.type_url == "type.googleapis.com/typed.v1.PlanTrip"


async def test_every_call_has_a_deadline(client: SagaClient, coordinator: TellingCoordinator) -> None:
    """A coordinator that hangs hangs nobody else."""
    handle = await client.start(whole_saga(), PlanTrip(), saga_id="trip-1")
    await coordinator.end(ended(State.STATE_COMPENSATED))
    await handle.wait()
    assert await handle.get() == await client.get("trip-1")
    assert [saga.saga_id async for saga in client.list()] == ["trip-1"]
    assert len(coordinator.asked) == 6
    assert all(each.time_left_s is not None and each.time_left_s < 66 for each in coordinator.asked)


async def test_a_start_whose_answer_was_lost_is_sent_again_with_its_id(
    client: SagaClient, coordinator: TellingCoordinator
) -> None:
    """S9: one saga per start, also when the client had no id of its own and was answered only at the third attempt,
    because the coordinator was away and then stopped.
    """
    await client.start(whole_saga(), PlanTrip())
    coordinator.refusals += [Refusal(grpc.StatusCode.UNAVAILABLE), Refusal(grpc.StatusCode.CANCELLED)]
    handle = await client.start(whole_saga(), PlanTrip())
    starts = [each.request for each in coordinator.asked if isinstance(each.request, api.StartSagaRequest)]
    assert [start.saga_id for start in starts[1:]] == [handle.saga_id] * 3
    assert uuid.UUID(handle.saga_id).version == 7
    assert starts[0].saga_id != handle.saga_id


async def test_a_coordinator_with_another_ledger_is_told_the_definition_again(
    client: SagaClient, coordinator: TellingCoordinator
) -> None:
    """What the client remembers of a coordinator is never taken for the truth."""
    await client.start(whole_saga(), PlanTrip(), saga_id="trip-1")
    coordinator.registered.clear()
    await client.start(whole_saga(), PlanTrip(), saga_id="trip-2")
    once = ["RegisterSagaDefinition", "StartSaga"]
    assert coordinator.methods() == [*once, "StartSaga", *once]


async def test_the_trace_goes_with_the_start(client: SagaClient, coordinator: TellingCoordinator) -> None:
    """The starter's context is the parent of the saga's span."""
    await client.start(whole_saga(), PlanTrip(), saga_id="trip-1")
    assert "traceparent" not in coordinator.asked[-1].metadata
    context = trace.SpanContext(
        trace_id=0xAF,
        span_id=0x7,
        is_remote=False,
        trace_flags=trace.TraceFlags(1),
        trace_state=trace.TraceState([("k", "v")]),
    )
    with trace.use_span(trace.NonRecordingSpan(context)):
        await client.start(whole_saga(), PlanTrip(), saga_id="trip-1")
    metadata = coordinator.asked[-1].metadata
    assert metadata["traceparent"] == f"00-{0xAF:032x}-{0x7:016x}-01"
    assert metadata["tracestate"] == "k=v"


async def test_what_cannot_be_started_is_not_sent(client: SagaClient, coordinator: TellingCoordinator) -> None:
    """Typed SDK: without a checker a wrong input is found before the coordinator is asked."""
    start = cast("Any", client.start)  # the checkers would refuse another input
    with pytest.raises(WrongMessageError, match=r"saga 'trip' is started with a typed.v1.BookRequest, but it takes a"):
        await start(whole_saga(), BookRequest())
    with pytest.raises(WrongMessageError, match=r"is started with a dict, but it takes a typed.v1.PlanTrip"):
        await start(whole_saga(), {})
    with pytest.raises(DefinitionError, match=r"isn't complete"):
        await client.start(Saga("trip", input=PlanTrip), PlanTrip())
    assert coordinator.asked == []


async def test_the_end_is_told_with_the_sagas_own_types(client: SagaClient, coordinator: TellingCoordinator) -> None:
    """S11: what the client is told is what the ledger holds."""
    handle = await client.start(whole_saga(), PlanTrip(), saga_id="trip-1")
    waiting = asyncio.create_task(handle.wait())
    await coordinator.waiting.wait()
    await coordinator.end(committed(TripPlanned(ticket_id="t")))
    assert await waiting == Committed("trip-1", TripPlanned(ticket_id="t"))
    assert await client.handle(whole_saga(), "trip-1").result() == TripPlanned(ticket_id="t")
    assert repr(handle) == "<handle of saga 'trip-1' (trip)>"


async def test_run_needs_one_round_trip_for_a_saga_that_ends_soon(
    client: SagaClient, coordinator: TellingCoordinator
) -> None:
    """Speed: start and end in one call, with the deadline that the waiting needs."""
    await coordinator.end(committed(TripPlanned(ticket_id="t")))
    end = await client.run(whole_saga(), PlanTrip(), saga_id="trip-1", timeout=timedelta(seconds=7))
    assert end == Committed("trip-1", TripPlanned(ticket_id="t"))
    assert coordinator.methods() == ["RegisterSagaDefinition", "StartSaga"]
    started = coordinator.asked[-1]
    assert isinstance(started.request, api.StartSagaRequest)
    assert started.request.wait_timeout.ToTimedelta() == timedelta(seconds=7)
    assert started.time_left_s is not None
    assert started.time_left_s > 7


async def test_run_goes_on_waiting_for_a_saga_that_takes_longer(
    client: SagaClient, coordinator: TellingCoordinator
) -> None:
    """L1: what one call can't wait for, the next ones do; a timeout of waiting stops nothing."""
    running = asyncio.create_task(client.run(whole_saga(), PlanTrip(), saga_id="trip-1"))
    await coordinator.waiting.wait()
    await coordinator.end(committed(TripPlanned(ticket_id="t")))
    assert await running == Committed("trip-1", TripPlanned(ticket_id="t"))
    with pytest.raises(WaitTimeoutError, match=r"saga 'trip-2' hadn't ended .*; it goes on, wait again"):
        await client.run(whole_saga(), PlanTrip(), saga_id="trip-2", timeout=timedelta(milliseconds=200))
    with pytest.raises(DefinitionError, match=r"timeout is 5: pass a timedelta"):
        await client.run(whole_saga(), PlanTrip(), timeout=cast("Any", 5))


async def test_a_saga_without_output_commits_with_none(client: SagaClient, coordinator: TellingCoordinator) -> None:
    """Typed SDK: no output is None, not an empty message."""
    errand = Saga("errand", input=PlanTrip)
    errand.read_only("quote", Quote(destination=errand.input.destination))
    handle = await client.start(errand, PlanTrip(), saga_id="trip-1")
    await coordinator.end(ended(State.STATE_COMMITTED))
    assert await handle.wait() == Committed("trip-1", None)


async def test_a_compensated_saga_says_why(client: SagaClient, coordinator: TellingCoordinator) -> None:
    """S4: the end names its first cause, and whether it is proven."""
    handle = await client.start(whole_saga(), PlanTrip(), saga_id="trip-1")
    await coordinator.end(ended(State.STATE_COMPENSATED, failure=FAILURE, unproven=True))
    failure = SagaFailure("issue", "SOLD_OUT", "FAILED_PRECONDITION", "no seats")
    end = await handle.wait()
    assert end == Compensated("trip-1", "SOLD_OUT", failure, unproven=True)
    with pytest.raises(
        SagaCompensated, match=r"saga 'trip-1' was rolled back: step 'issue': no seats \[SOLD_OUT\]"
    ) as caught:
        await handle.result()
    assert caught.value.end == end


async def test_a_saga_that_needs_a_person_says_for_what(client: SagaClient, coordinator: TellingCoordinator) -> None:
    """Only what is still open is listed; closed dead letters are history."""
    handle = await client.start(whole_saga(), PlanTrip(), saga_id="trip-1")
    letter = saga_pb2.DeadLetter(
        dead_letter_id="trip-1/book/compensation/2",
        step="book",
        direction=saga_pb2.DIRECTION_COMPENSATION,
        reason=saga_pb2.DeadLetter.REASON_REFUSED,
        last_error="not today",
    )
    closed = saga_pb2.DeadLetter(dead_letter_id="trip-1/book/compensation/1", step="book")
    closed.close_time.FromSeconds(1)
    of_the_future = saga_pb2.DeadLetter(dead_letter_id="x", reason=cast("Any", 99))
    letters = [closed, letter, of_the_future]
    await coordinator.end(ended(State.STATE_COMPENSATION_FAILED, failure=FAILURE, dead_letters=letters))
    end = await handle.wait()
    assert isinstance(end, CompensationFailed)
    assert end.dead_letters == (
        OpenDeadLetter("trip-1/book/compensation/2", "book", "COMPENSATION", "REFUSED", "not today"),
        OpenDeadLetter("x", "", "", "99", ""),
    )
    with pytest.raises(SagaCompensationFailed, match=r"a person has to settle: book COMPENSATION \(REFUSED\)"):
        await handle.result()


async def test_an_output_that_is_not_the_sagas_is_an_error(client: SagaClient, coordinator: TellingCoordinator) -> None:
    """A handle of one saga never passes another saga's output off as its own."""
    handle = await client.start(whole_saga(), PlanTrip(), saga_id="trip-1")
    other, torn = ended(State.STATE_COMMITTED), committed(TripPlanned())
    other.output.Pack(PlanTrip())
    torn.output.value = b"\xff"
    ends = [
        (other, r"should be a typed.v1.TripPlanned, but is typed.v1.PlanTrip: is 'trip-1' one of these sagas\?"),
        (ended(State.STATE_COMMITTED), r"but is missing"),
        (torn, r"but its bytes don't parse"),
    ]
    for saga, message in ends:
        await coordinator.end(saga)
        with pytest.raises(UnreadableAnswerError, match=message):
            await handle.wait()


async def test_f05_a_saga_that_retention_has_emptied_still_says_how_it_ended(
    client: SagaClient, coordinator: TellingCoordinator
) -> None:
    """F05, S8: it committed, and only its output is gone; whoever has no output misses nothing."""
    handle = await client.start(whole_saga(), PlanTrip(), saga_id="trip-1")
    await coordinator.end(ended(State.STATE_COMMITTED, purged=True))
    for told in (handle.wait, handle.result):
        with pytest.raises(OutputPurgedError, match=r"saga 'trip-1' committed, but its output isn't kept") as caught:
            await told()
        assert caught.value.end == Committed("trip-1", None, purged=True)
    without_output = client.handle(Saga("errand", input=PlanTrip), "trip-1")
    assert await without_output.wait() == Committed("trip-1", None, purged=True)
    await coordinator.end(ended(State.STATE_COMPENSATED, purged=True, failure=saga_pb2.Failure(reason="SOLD_OUT")))
    failure = SagaFailure("", "SOLD_OUT", "", "")
    assert await handle.wait() == Compensated("trip-1", "SOLD_OUT", failure, unproven=False, purged=True)


async def test_waiting_goes_on_over_a_restart_of_the_coordinator(coordinator: TellingCoordinator) -> None:
    """L1: a client that waits needs to know nothing of the coordinator's end and new start."""
    async with serving(coordinator) as address:
        client = await SagaClient(address).__aenter__()
        handle = await client.start(whole_saga(), PlanTrip(), saga_id="trip-1")
        waiting = asyncio.create_task(handle.wait())
        await coordinator.waiting.wait()
    async with SagaClient(address, unavailable_timeout=timedelta(milliseconds=300)) as other:
        with pytest.raises(CoordinatorUnavailableError):
            await other.get("trip-1")
    assert not waiting.done()
    await coordinator.end(committed(TripPlanned(ticket_id="t")))
    async with serving(coordinator, port=int(address.rpartition(":")[2])):
        assert await asyncio.wait_for(waiting, SOON.total_seconds()) == Committed("trip-1", TripPlanned(ticket_id="t"))
        await client.close()
        await client.close()


async def test_waiting_ends_with_its_timeout(
    client: SagaClient, coordinator: TellingCoordinator, dead_address: str
) -> None:
    """A timeout of waiting says that the saga goes on, or that nothing was heard of it."""
    handle = await client.start(whole_saga(), PlanTrip(), saga_id="trip-1")
    with pytest.raises(WaitTimeoutError, match=r"saga 'trip-1' hadn't ended after 0:00:00.1.*; it goes on, wait again"):
        await handle.wait(timedelta(milliseconds=100))
    asked = coordinator.asked[-1].request
    assert isinstance(asked, api.WaitSagaRequest)
    assert asked.wait_timeout.ToTimedelta() <= timedelta(milliseconds=100)
    async with SagaClient(dead_address) as lonely:
        with pytest.raises(WaitTimeoutError, match=r"nothing was heard of saga 'trip-1' within .*: wai") as caught:
            await lonely.handle(whole_saga(), "trip-1").wait(timedelta(milliseconds=300))
    assert isinstance(caught.value.__cause__, CoordinatorUnavailableError)
    with pytest.raises(DefinitionError, match=r"timeout is 5: pass a timedelta"):
        await handle.wait(cast("Any", 5))


async def test_a_coordinator_that_answers_at_once_is_not_asked_in_a_tight_loop(
    client: SagaClient, coordinator: TellingCoordinator
) -> None:
    """L2: one client that waits doesn't take the coordinator from the others."""
    handle = await client.start(whole_saga(), PlanTrip(), saga_id="trip-1")
    await coordinator.end(ended(State.STATE_COMPENSATING))
    with pytest.raises(WaitTimeoutError):
        await handle.wait(timedelta(milliseconds=350))
    assert 2 <= coordinator.methods().count("WaitSaga") <= 5


async def test_an_unknown_saga_is_not_waited_for(client: SagaClient) -> None:
    """A wrong id is an error, not an endless wait."""
    with pytest.raises(SagaNotFoundError, match=r"waiting for saga 'trip-9': no \[SAGA_NOT_FOUND\]"):
        await client.handle(whole_saga(), "trip-9").wait()


async def test_nobody_at_the_address(dead_address: str) -> None:
    """The error of the first minute says what to do."""
    async with SagaClient(dead_address, unavailable_timeout=timedelta(milliseconds=300)) as client:
        with pytest.raises(CoordinatorUnavailableError) as caught:
            await client.start(whole_saga(), PlanTrip(), saga_id="trip-1")
    assert f"no coordinator answers at {dead_address}; start one with `amends dev` or check the address" in str(
        caught.value
    )
    assert (caught.value.reason, caught.value.status_code) == ("NO_COORDINATOR", grpc.StatusCode.UNAVAILABLE)


async def test_an_abort_is_repeated_and_answers_the_saga(client: SagaClient, coordinator: TellingCoordinator) -> None:
    """S10: an abort whose answer got lost is sent again by itself; client and handle ask for the same."""
    handle = await client.start(whole_saga(), PlanTrip(), saga_id="trip-1")
    coordinator.refusals.append(Refusal(grpc.StatusCode.UNAVAILABLE, details=[error_info("LEDGER_UNAVAILABLE")]))
    assert (await handle.abort("not wanted")).abort_requested
    assert (await client.abort("trip-1", "not wanted")).abort_requested
    asked = [each.request for each in coordinator.asked if each.method == "AbortSaga"]
    assert asked == [api.AbortSagaRequest(saga_id="trip-1", reason="not wanted")] * 3


async def test_a_coordinator_that_does_not_answer_in_time(client: SagaClient, coordinator: TellingCoordinator) -> None:
    """A lost answer proves nothing, and the error says so."""
    coordinator.refusals.append(Refusal(grpc.StatusCode.DEADLINE_EXCEEDED))
    with pytest.raises(CoordinatorUnavailableError, match=r"did not answer in time \[NO_ANSWER\]\nIt may have done it"):
        await client.get("trip-1")
    assert coordinator.methods() == ["GetSaga"]


async def test_refusals_become_errors_with_reason_fields_and_next_step(
    client: SagaClient, coordinator: TellingCoordinator
) -> None:
    """Errors: reason, what went wrong, where, and what to do now."""
    bad = error_details_pb2.BadRequest()
    bad.field_violations.add(field="steps[1].after", description="no step 'x'")
    code = grpc.StatusCode
    refusals: list[tuple[Refusal, type[CoordinatorError], str]] = [
        (Refusal(code.INVALID_ARGUMENT, details=[error_info("INVALID_REQUEST"), bad]), InvalidRequestError, "Corr"),
        (
            Refusal(code.INVALID_ARGUMENT, details=[error_info("INVALID_PAYLOAD")]),
            InvalidRequestError,
            "Send a message",
        ),
        (
            Refusal(code.INVALID_ARGUMENT, details=[bad, error_info("INVALID_DEFINITION")]),
            InvalidDefinitionError,
            "Corr",
        ),
        (Refusal(code.ALREADY_EXISTS, details=[error_info("SAGA_ID_IN_USE")]), SagaIdInUseError, ""),
        (
            Refusal(code.FAILED_PRECONDITION, details=[error_info("PAST_POINT_OF_NO_RETURN")]),
            PastPointOfNoReturnError,
            "",
        ),
        (Refusal(code.UNIMPLEMENTED, details=[error_info("NOT_YET")]), NotYetError, "release"),
        (Refusal(code.UNIMPLEMENTED), NotACoordinatorError, "Check that an amends coordinator"),
        (Refusal(code.INTERNAL, details=[error_info("COORDINATOR_FAULT")]), CoordinatorError, ""),
        (Refusal(code.INTERNAL, details=[error_info("OF_THE_FUTURE")]), CoordinatorError, ""),
        (Refusal(code.INTERNAL, "broken", details=[error_info("X", domain="else.example")]), CoordinatorError, ""),
    ]
    for refusal, kind, next_step in refusals:
        coordinator.refusals.append(refusal)
        with pytest.raises(CoordinatorError) as caught:
            await client.get("trip-1")
        assert type(caught.value) is kind
        assert next_step in caught.value.what_to_do
        assert caught.value.status_code is refusal.code
        assert caught.value.fields == ((FieldFault("steps[1].after", "no step 'x'"),) if bad in refusal.details else ())


async def test_an_error_that_was_handled_is_gone(client: SagaClient, coordinator: TellingCoordinator) -> None:
    """L2: whoever is refused again and again doesn't fill the memory with requests until they are looked for there."""
    gc.collect()
    gc.disable()
    try:
        coordinator.refusals.append(Refusal(grpc.StatusCode.INTERNAL))
        with pytest.raises(CoordinatorError) as caught:
            await client.get("trip-1")
        refused = weakref.ref(caught.value)
        del caught
        assert refused() is None
    finally:
        gc.enable()


async def test_the_text_of_an_error_says_everything_once(client: SagaClient, coordinator: TellingCoordinator) -> None:
    """What the message lists already is not listed again, and what it cuts off is."""
    bad = error_details_pb2.BadRequest()
    bad.field_violations.add(field="saga_id", description="has a space")
    bad.field_violations.add(field="labels", description="are too many")
    details = [error_info("INVALID_REQUEST"), bad]
    coordinator.refusals.append(Refusal(grpc.StatusCode.INVALID_ARGUMENT, "saga_id: has a space", details))
    coordinator.refusals.append(Refusal(grpc.StatusCode.INTERNAL, "broken"))
    with pytest.raises(InvalidRequestError) as listed:
        await client.get("trip-1")
    assert str(listed.value).splitlines() == [
        "looking at saga 'trip-1': saga_id: has a space [INVALID_REQUEST]",
        "  labels: are too many",
        "Correct the named fields.",
    ]
    with pytest.raises(CoordinatorError, match=r"^looking at saga 'trip-1': broken \[UNKNOWN\]$"):
        await client.get("trip-1")


async def test_a_ledger_that_is_down_is_asked_again_when_it_asks_for_it(
    client: SagaClient, coordinator: TellingCoordinator
) -> None:
    """A coordinator whose ledger is away says when to come back, and the client does, within its bound."""
    retry = error_details_pb2.RetryInfo(retry_delay=Duration(nanos=250_000_000))
    details = [error_info("LEDGER_UNAVAILABLE"), retry]
    coordinator.refusals.append(Refusal(grpc.StatusCode.UNAVAILABLE, details=details))
    loop = asyncio.get_running_loop()
    began = loop.time()
    await client.start(whole_saga(), PlanTrip(), saga_id="trip-1")
    assert loop.time() - began >= 0.25
    coordinator.refusals += [Refusal(grpc.StatusCode.UNAVAILABLE, "away", details=details)] * 9
    async with SagaClient(client.target, unavailable_timeout=timedelta(milliseconds=1)) as hasty:
        with pytest.raises(CoordinatorUnavailableError, match=r"away \[LEDGER_UNAVAILABLE\]$"):
            await hasty.get("trip-1")


async def test_a_client_that_is_not_open_says_how_to_open_it() -> None:
    """A channel belongs to one event loop, so it is made where it is used."""
    client = SagaClient("localhost:7070")
    with pytest.raises(ClientClosedError, match=r"use it inside `async with SagaClient\('localhost:7070'\) as"):
        await client.get("trip-1")
    async with client:
        handle = client.handle(whole_saga(), "trip-1")
    with pytest.raises(ClientClosedError):
        await handle.wait()
    with pytest.raises(DefinitionError, match=r"call_timeout is 5: pass a timedelta"):
        SagaClient("localhost:7070", call_timeout=cast("Any", 5))


async def test_a_client_that_is_closed_ends_what_waits_for_it(
    coordinator: TellingCoordinator, dead_address: str
) -> None:
    """Whoever still waits is told that the client was closed, not that somebody cancelled the task."""
    async with serving(coordinator) as address, SagaClient(address) as client:
        handle = await client.start(whole_saga(), PlanTrip(), saga_id="trip-1")
        cancelled, waiting = asyncio.create_task(handle.wait()), asyncio.create_task(handle.wait())
        await coordinator.waiting.wait()
        cancelled.cancel()
        await client.close()
        with pytest.raises(ClientClosedError, match=r"waiting for saga 'trip-1': the client was closed meanwhile"):
            await waiting
        with pytest.raises(asyncio.CancelledError):
            await cancelled
    async with SagaClient(dead_address) as lonely:
        pausing = asyncio.create_task(lonely.handle(whole_saga(), "trip-1").wait())
        with pytest.raises(WaitTimeoutError):
            await lonely.handle(whole_saga(), "trip-1").wait(timedelta(milliseconds=100))
    with pytest.raises(ClientClosedError):
        await pausing
