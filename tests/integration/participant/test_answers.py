"""How a handler ends, seen from a channel that knows nothing of the SDK: codes, texts and trailers."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped] # ships stubs but no py.typed
from opentelemetry import trace

from amends import ParticipantServer, Rejected, TryLater, current_step
from shop.inventory.v1.inventory_pb2 import ReleaseResponse, ReserveRequest, ReserveResponse
from shop.inventory.v1.inventory_pb2_grpc import InventoryServiceServicer
from tests.integration.participant.calls import (
    NO_COORDINATOR,
    RESERVE,
    SERVICE,
    Behaviour,
    Inventory,
    ReserveContext,
    as_step,
    reserve_at_once,
)

SECRET = "4111-1111-1111-1111"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    code: grpc.StatusCode
    text: str
    trailers: Mapping[str, str | bytes]
    response: bytes = b""

    def details(self) -> status_pb2.Status:
        """The status in the trailers."""
        sent = self.trailers["grpc-status-details-bin"]
        assert isinstance(sent, bytes)
        return status_pb2.Status.FromString(sent)


@asynccontextmanager
async def serving(behaviour: Behaviour, *, capacity: int = 0) -> AsyncGenerator[grpc.aio.Channel]:
    """A channel to an inventory that reserves like this."""
    async with serving_servicer(Inventory(behaviour), capacity=capacity) as channel:
        yield channel


@asynccontextmanager
async def serving_servicer(
    servicer: InventoryServiceServicer, *, capacity: int = 0, threads: int = 16
) -> AsyncGenerator[grpc.aio.Channel]:
    """A channel to a participant that serves it."""
    server = ParticipantServer(
        "inventory", coordinator=NO_COORDINATOR, capacity=capacity, stop_grace_s=0, threads=threads
    )
    server.add(servicer)
    async with server, grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        await channel.channel_ready()  # a short deadline is for the call alone
        yield channel


async def reserve(
    channel: grpc.aio.Channel,
    metadata: tuple[tuple[str, str], ...],
    *,
    timeout_s: float | None = 10,
    sku: str = "sku-1",
) -> Answer:
    """Calls with bytes, as the coordinator does."""
    method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{RESERVE}")
    call = method(ReserveRequest(sku=sku).SerializeToString(), metadata=metadata, timeout=timeout_s)
    try:
        response = await call
    except grpc.aio.AioRpcError as error:
        return Answer(error.code(), error.details() or "", dict(_pairs(error.trailing_metadata())))
    return Answer(grpc.StatusCode.OK, "", dict(_pairs(await call.trailing_metadata())), response)


async def answer_of(behaviour: Behaviour, metadata: tuple[tuple[str, str], ...] | None = None) -> Answer:
    """What one call of a step that behaves like this is answered."""
    async with serving(behaviour) as channel:
        return await reserve(channel, as_step() if metadata is None else metadata)


def _pairs(metadata: grpc.aio.Metadata | None) -> list[tuple[str, str | bytes]]:
    return [(key, value) for key, value in metadata or ()]


async def test_success_has_no_trailers_of_ours() -> None:
    """S4: an ordinary answer is an ordinary answer."""

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        assert current_step().key == "order-1/reserve/action"
        return ReserveResponse(reservation_id=request.sku)

    answer = await answer_of(behaviour)
    assert (answer.code, ReserveResponse.FromString(answer.response).reservation_id) == (grpc.StatusCode.OK, "sku-1")
    assert answer.trailers == {}


async def test_rejected() -> None:
    """S4: a clear no arrives as one, with its reason."""

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        context.set_trailing_metadata((("shop-shelf", "7"),))
        raise Rejected("nö: sold out\nfor today\0", reason="SOLD_OUT", code=grpc.StatusCode.OUT_OF_RANGE)

    answer = await answer_of(behaviour)
    info = error_details_pb2.ErrorInfo()
    assert answer.code is grpc.StatusCode.OUT_OF_RANGE
    assert answer.details().message == "nö: sold out\nfor today\0"
    assert answer.details().details[0].Unpack(info)
    assert (info.domain, info.reason) == ("inventory", "SOLD_OUT")
    assert answer.trailers["shop-shelf"] == "7"


async def test_a_long_refusal_is_still_a_refusal() -> None:
    """S4: a text that is too long for gRPC is cut, instead of making a no an unknown."""

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        raise Rejected("ü" * 100_000, reason="R" * 100_000)

    answer = await answer_of(behaviour)
    assert (answer.code, answer.text) == (grpc.StatusCode.FAILED_PRECONDITION, "ü" * 512)


async def test_try_later() -> None:
    """S4: "not now" proves that nothing began, and says when to come again."""

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        raise TryLater("stocktaking", timedelta(seconds=3))

    answer = await answer_of(behaviour)
    info = error_details_pb2.RetryInfo()
    assert (answer.code, answer.text) == (grpc.StatusCode.UNAVAILABLE, "stocktaking")
    assert answer.trailers["amends-executed"] == "no"
    assert answer.details().details[0].Unpack(info)
    assert info.retry_delay.ToTimedelta() == timedelta(seconds=3)


async def test_abort_saga_succeeds_and_says_so() -> None:
    """S10: the step is done, and the wish to roll back comes along, cut between two characters."""

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        context.set_trailing_metadata((("shop-shelf", "7"),))
        current_step().abort_saga("a" + "ß" * 400)
        return ReserveResponse(reservation_id="r-1")

    answer = await answer_of(behaviour)
    assert answer.code is grpc.StatusCode.OK
    assert answer.trailers == {"shop-shelf": "7", "amends-abort-bin": ("a" + "ß" * 255).encode()}


async def test_abort_saga_counts_only_when_the_handler_returns() -> None:
    """S4: a refusal after abort_saga is a refusal."""

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        current_step().abort_saga("not needed")
        raise Rejected("sold out")

    answer = await answer_of(behaviour)
    assert answer.code is grpc.StatusCode.FAILED_PRECONDITION
    assert "amends-abort-bin" not in answer.trailers


async def test_an_unexpected_exception_keeps_its_text_to_itself(caplog: pytest.LogCaptureFixture) -> None:
    """S4: what proves nothing is UNKNOWN; the text stays here, with its traceback and the key, and never leaves."""

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        raise ValueError(f"card {SECRET}")

    with caplog.at_level(logging.INFO, "amends.participant"):
        answer = await answer_of(behaviour)
    text = f"the handler of {RESERVE} raised ValueError; see the participant's log"
    assert (answer.code, answer.text, answer.trailers) == (grpc.StatusCode.UNKNOWN, text, {})
    ours = [record for record in caplog.records if record.name == "amends.participant"]
    (record,) = [record for record in ours if record.levelno >= logging.ERROR]
    assert record.exc_info is not None
    assert "order-1/reserve/action" in record.getMessage()
    assert SECRET not in record.getMessage()


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (None, "returned None instead of shop.inventory.v1.ReserveResponse: did it forget to return?"),
        (ReleaseResponse(), "returned ReleaseResponse instead of shop.inventory.v1.ReserveResponse"),
    ],
)
async def test_a_wrong_return_value_is_told(returned: object, told: str, caplog: pytest.LogCaptureFixture) -> None:
    """S4: gRPC would send nothing at all as OK; what was done is unknown, and the log says where to look."""

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        return cast("ReserveResponse", returned)

    answer = await answer_of(behaviour)
    assert (answer.code, answer.text) == (grpc.StatusCode.INTERNAL, f"the handler of {RESERVE} {told}")
    (said,) = [record.getMessage() for record in caplog.records if told in record.getMessage()]
    assert re.search(r"Inventory\.Reserve \(.+calls\.py:\d+\)", said), "it names the line to mend"


async def test_a_method_that_only_the_callers_proto_has() -> None:
    """A wiring fault, in words: the generated code here is older than the saga's, or a name is misspelt."""
    async with serving(reserve_at_once) as channel:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/Refund")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(b"", metadata=as_step(), timeout=10)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert f"participant inventory has no {SERVICE}/Refund, only Reserve, Release: " in (caught.value.details() or "")


async def test_grpcs_own_ways_pass_through() -> None:
    """S4: a handler may abort or set a code as in any gRPC server, also if it swallows its own abort."""

    async def aborts(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        await context.abort(grpc.StatusCode.ABORTED, "once more", (("shop-shelf", "7"),))

    async def swallows(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        try:
            await context.abort(grpc.StatusCode.ABORTED, "once more", (("shop-shelf", "7"),))
        except grpc.aio.AbortError:
            return ReserveResponse()

    async def sets(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        context.set_code(grpc.StatusCode.ABORTED)
        context.set_details("once more")
        context.set_trailing_metadata((("shop-shelf", "7"),))
        return ReserveResponse()

    for behaviour in (aborts, swallows, sets):
        assert await answer_of(behaviour) == Answer(grpc.StatusCode.ABORTED, "once more", {"shop-shelf": "7"})


async def test_a_deadline_cancels_the_handler() -> None:
    """S4: a handler whose time is over is cancelled, and may clean up; the caller learns nothing of it."""
    cancelled = asyncio.Event()

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        left_s = current_step().time_remaining()
        assert left_s is not None
        assert 0 < left_s < 1  # gRPC rounds it up on the wire
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    async with serving(behaviour) as channel:
        answer = await reserve(channel, as_step(), timeout_s=0.5)
        async with asyncio.timeout(10):
            await cancelled.wait()
    assert answer.code is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_calls_that_no_coordinator_made_have_no_step() -> None:
    """S2: direct callers are served as ever, also with an idempotency key of their own; only the step is missing."""

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        if request.sku == "step":
            current_step()
        if request.sku == "no":
            raise Rejected("sold out")
        return ReserveResponse(reservation_id="r-1")

    async with serving(behaviour) as channel:
        for metadata in ((), (("idempotency-key", "mine"),), (("amends-saga-id", "for-the-log"),)):
            assert (await reserve(channel, metadata)).code is grpc.StatusCode.OK
            assert (await reserve(channel, metadata, sku="no")).code is grpc.StatusCode.FAILED_PRECONDITION
            answer = await reserve(channel, metadata, sku="step")
            assert (answer.code, "raised NotInStep" in answer.text) == (grpc.StatusCode.UNKNOWN, True)


async def test_a_step_that_cannot_be_read_is_not_run(caplog: pytest.LogCaptureFixture) -> None:
    """S2: a handler never runs with a guessed key; the answer is that of a wiring fault, and says what is wrong."""
    runs: list[str] = []

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        runs.append(request.sku)
        return ReserveResponse()

    without_key = tuple(pair for pair in as_step() if pair[0] != "idempotency-key")  # a proxy took it out
    for metadata, problem in (
        (as_step(amends_attempt="first"), "incomplete or malformed"),
        (without_key, "idempotency-key is missing"),
    ):
        answer = await answer_of(behaviour, metadata)
        assert (answer.code, runs) == (grpc.StatusCode.UNIMPLEMENTED, [])
        assert problem in answer.text
    assert any("incomplete or malformed" in record.getMessage() for record in caplog.records)


async def test_a_full_participant_says_that_it_did_not_begin() -> None:
    """L2: what is over the capacity is not run, and proves it; a place that is free again is used."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        begun.set()
        await go_on.wait()
        return ReserveResponse()

    async with serving(behaviour, capacity=1) as channel, asyncio.timeout(10):
        first = asyncio.create_task(reserve(channel, as_step("order-1")))
        await begun.wait()
        full = await reserve(channel, as_step("order-2"))
        go_on.set()
        after = [(await first).code, (await reserve(channel, as_step("order-2"))).code]
    assert (full.code, full.trailers["amends-executed"]) == (grpc.StatusCode.UNAVAILABLE, "no")
    assert full.text == "inventory is full: 1 at once is all it takes"
    assert after == [grpc.StatusCode.OK, grpc.StatusCode.OK]


async def test_the_callers_trace_goes_on_in_the_handler() -> None:
    """S2: spans that a handler makes hang under the attempt's, and nothing is left behind for the next call."""
    seen: list[tuple[str, str, str]] = []

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        span = trace.get_current_span().get_span_context()
        seen.append((f"{span.trace_id:032x}", f"{span.span_id:016x}", span.trace_state.to_header()))
        return ReserveResponse()

    async with serving(behaviour) as channel:
        traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        await reserve(channel, as_step(traceparent=traceparent, tracestate="vendor=1"))
        await reserve(channel, as_step())
    assert seen == [("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "vendor=1"), ("0" * 32, "0" * 16, "")]
