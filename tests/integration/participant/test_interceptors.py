"""A team's own interceptors stand before the steps: they let through, count and refuse as in any gRPC server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeAlias

import grpc
import pytest
from google.protobuf.message import Message
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionServicer  # type: ignore[import-untyped] # ships no types

from amends import NotInStep, ParticipantServer, Rejected, StepContext, current_step
from shop.inventory.v1.inventory_pb2 import ReserveRequest, ReserveResponse
from tests.integration.participant.calls import (
    NO_COORDINATOR,
    RESERVE,
    Behaviour,
    Inventory,
    ReserveContext,
    as_step,
    reserve_at_once,
)
from tests.integration.participant.test_answers import reserve
from tests.integration.participant.test_serving import health_of

# Any: interceptors are written for every method.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Continuation: TypeAlias = Callable[[grpc.HandlerCallDetails], Awaitable["Handler | None"]]

REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
SECRET = "4111-1111-1111-1111"
OK, UNKNOWN = grpc.StatusCode.OK, grpc.StatusCode.UNKNOWN


class Authenticating(grpc.aio.ServerInterceptor):
    """Lets those through who know the word, and whoever asks for health."""

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        known = dict(handler_call_details.invocation_metadata or ()).get("authorization") == "Bearer word"
        if known or handler_call_details.method.startswith("/grpc.health."):
            return await continuation(handler_call_details)

        async def deny(_: bytes, context: Context) -> None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "say the word")

        return grpc.unary_unary_rpc_method_handler(deny)


class Counting(grpc.aio.ServerInterceptor):
    """Notes what passes: the saga, the request, and how it ended."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str]] = []

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        if handler is None or handler.unary_unary is None or "inventory" not in handler_call_details.method:
            return handler
        inner: Callable[[Message, Context], Awaitable[Message]] = handler.unary_unary  # type: ignore[assignment] # pyright: ignore[reportAssignmentType] # the stubs know synchronous handlers only
        saga = StepContext.from_metadata(handler_call_details.invocation_metadata).saga_id

        async def counted(request: Message, context: Context) -> Message:
            with pytest.raises(NotInStep):
                current_step()  # begins behind the interceptors
            end = "aborted"
            try:
                response = await inner(request, context)
                end = str(response).strip()
                return response
            finally:
                self.seen.append((saga, str(request).strip(), end))

        return grpc.unary_unary_rpc_method_handler(
            counted, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
        )


class Failing(grpc.aio.ServerInterceptor):
    """Raises where it is told to: before the call, or around its handler."""

    def __init__(self, fault: Callable[[], BaseException], *, around: bool) -> None:
        self._fault, self._around = fault, around

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        if not self._around:
            raise self._fault()
        handler = await continuation(handler_call_details)
        assert handler is not None

        async def fail(request: Message, context: Context) -> Message:
            raise self._fault()

        return grpc.unary_unary_rpc_method_handler(
            fail, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
        )


class Rewritten(NamedTuple):
    """A call's details with other metadata than it came with."""

    method: str
    invocation_metadata: grpc.aio.Metadata


class Tenanting(grpc.aio.ServerInterceptor):
    """Writes more into a call's metadata than came with it, in gRPC's own type."""

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        metadata = grpc.aio.Metadata(*handler_call_details.invocation_metadata, ("x-tenant", "a"), ("x-tenant", "b"))
        return await continuation(Rewritten(handler_call_details.method, metadata))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # gRPC looks at its two fields only


@asynccontextmanager
async def intercepted(
    *interceptors: grpc.aio.ServerInterceptor, behaviour: Behaviour = reserve_at_once
) -> AsyncGenerator[grpc.aio.Channel]:
    """A channel to an inventory behind them."""
    server = ParticipantServer("inventory", coordinator=NO_COORDINATOR, stop_grace_s=0, interceptors=interceptors)
    server.add(Inventory(behaviour))
    async with server, grpc.aio.insecure_channel(server.address) as channel:
        yield channel


async def test_an_interceptor_may_hand_on_other_metadata() -> None:
    """S2: the step is the one that the details tell of, whatever gRPC's type for them is."""

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        return ReserveResponse(reservation_id=current_step().key)

    async with intercepted(Tenanting(), behaviour=behaviour) as channel:
        answer = await reserve(channel, as_step())
    assert answer.code is OK
    assert ReserveResponse.FromString(answer.response).reservation_id == dict(as_step())["idempotency-key"]


async def test_interceptors_see_every_call_as_in_any_server() -> None:
    """S2: the first is the outermost; they see messages; what is denied has neither run nor used its key."""
    ran: list[str] = []

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        ran.append(current_step().saga_id)
        if request.sku == "none":
            raise Rejected("sold out")
        return ReserveResponse(reservation_id="r-1")

    counting, word = Counting(), ("authorization", "Bearer word")
    async with intercepted(Authenticating(), counting, behaviour=behaviour) as channel:
        denied = await reserve(channel, as_step("order-1"), sku="stolen")
        passed = await reserve(channel, (*as_step("order-1"), word), sku="ten")
        refused = await reserve(channel, (*as_step("order-2"), word), sku="none")
        assert await health_of(channel, "") == "SERVING"
    assert [denied.code, passed.code, refused.code] == [
        grpc.StatusCode.UNAUTHENTICATED,
        OK,
        grpc.StatusCode.FAILED_PRECONDITION,
    ]
    assert ran == ["order-1", "order-2"]
    assert counting.seen == [
        ("order-1", 'sku: "ten"', 'reservation_id: "r-1"'),
        ("order-2", 'sku: "none"', "aborted"),
    ]


@pytest.mark.parametrize("around", [False, True], ids=["before the call", "around the handler"])
async def test_what_an_interceptor_raises_keeps_its_text_to_itself(
    around: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """S4: gRPC would send the text of it, and of a refusal nothing; here it is what a handler's would be."""
    with caplog.at_level(logging.INFO, "amends.participant"):
        async with intercepted(Failing(lambda: ValueError(f"card {SECRET}"), around=around)) as channel:
            answer = await reserve(channel, as_step(), timeout_s=5)
        async with intercepted(Failing(lambda: Rejected("not for you"), around=around)) as channel:
            refused = await reserve(channel, as_step(), timeout_s=5)
    assert (answer.code, SECRET in answer.text) == (UNKNOWN, False)
    assert RESERVE in answer.text
    assert (refused.code, refused.text) == (grpc.StatusCode.FAILED_PRECONDITION, "not for you")
    assert any(record.exc_info and SECRET in str(record.exc_info[1]) for record in caplog.records)


async def test_a_handler_that_something_of_its_own_cancels_is_answered_for() -> None:
    """S4: gRPC would say nothing, and the caller would wait for its deadline; nothing is proven, and told at once."""

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        waiting = asyncio.get_running_loop().create_future()
        waiting.cancel()
        await waiting
        raise AssertionError

    async with intercepted(behaviour=behaviour) as channel:
        answer = await reserve(channel, as_step(), timeout_s=5)
    assert (answer.code, "raised CancelledError" in answer.text) == (UNKNOWN, True)


class Talking(ServerReflectionServicer):  # type: ignore[misc] # grpcio-reflection ships no types
    """A stream that ends as it is told to."""

    def __init__(self, fault: BaseException) -> None:
        self._fault = fault

    async def ServerReflectionInfo(
        self, request_iterator: AsyncIterator[object], context: Context
    ) -> AsyncIterator[object]:
        async for request in request_iterator:
            yield request
            raise self._fault


async def test_streams_refuse_and_fail_like_everything_else() -> None:
    """S4: a stream is no step, but what it raises is answered for, and its text stays here."""
    ends: list[tuple[grpc.StatusCode, str]] = []
    for fault in (Rejected("not for you"), ValueError(f"card {SECRET}")):
        server = ParticipantServer("talk", coordinator=NO_COORDINATOR, stop_grace_s=0)
        server.add(Talking(fault))
        async with server, grpc.aio.insecure_channel(server.address) as channel:
            talk: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(REFLECTION)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                _ = [answer async for answer in talk(iter((b"",)), timeout=5)]
        ends.append((caught.value.code(), caught.value.details() or ""))
    assert ends[0] == (grpc.StatusCode.FAILED_PRECONDITION, "not for you")
    assert (ends[1][0], SECRET in ends[1][1]) == (UNKNOWN, False)
