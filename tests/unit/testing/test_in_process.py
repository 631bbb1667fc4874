"""gRPC without a network: whoever calls hears the same as over one, and so does whoever answers."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
import grpc.aio
import pytest

from amends import Rejected, TryLater, current_step
from amends.participant.aio_server import ServedCalls
from amends.participant.discretion import Discretion
from amends.participant.in_flight import CallsInFlight
from amends.participant.services import read_servicer
from amends.participant.step_calls import StepCalls
from amends.participant.threads import HandlerThreads
from amends.testing.participants import Participant
from scenario.v1.scenario_pb2 import DoRequest, DoResponse
from tests.unit.testing.stage import Steps

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.unit.testing.stage import Context

    BytesMethod: TypeAlias = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]

DO = "/scenario.v1.StepService/Do"
STEP = (
    ("idempotency-key", "s-1/a/action"),
    ("amends-key-uuid", "0b6cf2c4-5c6a-5d5f-9f9a-3b7f3d1c1d11"),
    ("amends-ledger", "default"),
    ("amends-saga-id", "s-1"),
    ("amends-step", "a"),
    ("amends-kind", "compensatable"),
    ("amends-direction", "action"),
    ("amends-attempt", "1"),
)
OURS = frozenset(
    {"amends-executed", "amends-abort-bin", "amends-sealed", "grpc-status-details-bin", "mood", "mood-bin"}
)
"""The trailers that are compared: a network adds its own."""


class Behaving(Steps):
    """Ends its calls in every way that there is."""

    async def Do(self, request: DoRequest, context: Context) -> DoResponse:
        """The request's name says how."""
        behaviour = getattr(self, request.name)
        return await behaviour(context)  # type: ignore[no-any-return]  # whatever a handler may return

    async def good(self, context: Context) -> DoResponse:
        """With trailers of its own, and a remark on what it was given."""
        context.set_trailing_metadata((("mood", "good"), ("mood-bin", b"\xff\x00")))
        metadata = dict(context.invocation_metadata() or ())
        return DoResponse(effect_id=f"{metadata['amends-step']!r} {current_step().key}", name=str(context.code()))

    async def aborting(self, context: Context) -> DoResponse:
        """Asks for the saga to be rolled back."""
        current_step().abort_saga("no more")
        return DoResponse()

    async def rejecting(self, context: Context) -> DoResponse:
        """A clear no."""
        raise Rejected("nö", reason="CARD_DECLINED", code=grpc.StatusCode.OUT_OF_RANGE)

    async def later(self, context: Context) -> DoResponse:
        """Not now."""
        raise TryLater("full", timedelta(seconds=2))

    async def failing(self, context: Context) -> DoResponse:
        """A fault, whose text stays here."""
        raise RuntimeError("secret")

    async def ending_the_call(self, context: Context) -> DoResponse:
        """In gRPC's own way, with a trailer."""
        await context.abort(grpc.StatusCode.DATA_LOSS, "gone", (("mood", "bad"),))
        raise AssertionError("it goes on after an abort")

    async def setting_a_code(self, context: Context) -> DoResponse:
        """In gRPC's other way."""
        context.set_code(grpc.StatusCode.NOT_FOUND)
        context.set_details("not here")
        return DoResponse()

    async def without_a_response(self, context: Context) -> DoResponse:
        """Forgets to return."""
        return None  # type: ignore[return-value]  # pyright: ignore[reportReturnType] - the planted fault


class Standing(grpc.aio.ServerInterceptor):
    """Stands before the handlers: denies, raises, or notes what passes, as the metadata says."""

    def __init__(self) -> None:
        self.passed: list[str] = []

    async def intercept_service(self, continuation: Any, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """See gRPC."""
        mood = dict(handler_call_details.invocation_metadata or ()).get("mood")
        if mood == "raises":
            raise RuntimeError("secret")
        if mood == "denies":
            denied: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(deny)
            return denied
        self.passed.append(handler_call_details.method)
        return await continuation(handler_call_details)


async def deny(_: bytes, context: Context) -> None:
    """Lets nobody in."""
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "say the word")


@asynccontextmanager
async def network(*interceptors: grpc.aio.ServerInterceptor) -> AsyncGenerator[grpc.aio.Channel]:
    """A channel over a network to the servicer."""
    stand_before = (Discretion("steps"), *interceptors) if interceptors else ()
    server, threads = grpc.aio.server(interceptors=stand_before), HandlerThreads(1)
    calls = StepCalls("steps", capacity=0, in_flight=CallsInFlight())
    server.add_generic_rpc_handlers((ServedCalls(calls, services=read_servicer(Behaving()), threads=threads),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(None)
    threads.close()


async def at_once() -> None:
    """Nobody has to wait."""


@asynccontextmanager
async def in_process(*interceptors: grpc.aio.ServerInterceptor) -> AsyncGenerator[grpc.aio.Channel]:
    """A channel without one."""
    participant = Participant("steps", [Behaving()], begin=at_once, interceptors=interceptors)
    yield participant.described().channel
    participant.close()


async def heard(channel: grpc.aio.Channel, path: str, request: bytes, *, mood: str = "") -> tuple[Any, ...]:
    """What a caller hears: code, text, response, and our trailers."""
    method: BytesMethod = channel.unary_unary(path)
    call = method(request, timeout=10, metadata=grpc.aio.Metadata(*STEP, ("mood", mood)))
    try:
        response = await call
        return (grpc.StatusCode.OK, "", response, _ours(await call.trailing_metadata()))
    except grpc.aio.AioRpcError as error:
        return (error.code(), error.details(), None, _ours(error.trailing_metadata()))


def _ours(trailers: Any) -> list[tuple[str, str | bytes]]:
    return sorted((key, value) for key, value in trailers or () if key in OURS)


BEHAVIOURS = [name for name in vars(Behaving) if name[0].islower()]


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
async def test_a_caller_hears_the_same(behaviour: str) -> None:
    """However a handler ends: the status, its text, the response's bytes and the trailers."""
    request = DoRequest(name=behaviour).SerializeToString()
    async with network() as far, in_process() as near:
        assert await heard(near, DO, request) == await heard(far, DO, request)


@pytest.mark.parametrize(
    ("path", "request_"),
    [
        pytest.param(DO, b"\xff", id="bytes-that-are-no-request"),
        pytest.param("/scenario.v1.StepService/Undone", b"", id="a-method-that-is-not-there"),
        pytest.param("/scenario.v1.OtherService/Do", b"", id="a-service-that-is-not-there"),
    ],
)
async def test_a_call_that_cannot_be_carried_out(path: str, request_: bytes) -> None:
    """The same refusal."""
    async with network() as far, in_process() as near:
        assert await heard(near, path, request_) == await heard(far, path, request_)


@pytest.mark.parametrize("mood", ["passes", "denies", "raises"])
async def test_interceptors_stand_before_the_handlers(mood: str) -> None:
    """The author's own, with the same discretion as before a server's handlers."""
    here, there = Standing(), Standing()
    request = DoRequest(name="good").SerializeToString()
    async with network(there) as far, in_process(here) as near:
        assert await heard(near, DO, request, mood=mood) == await heard(far, DO, request, mood=mood)
    assert here.passed == there.passed == ([DO] if mood == "passes" else [])


async def test_a_caller_that_goes_away_cancels_its_call() -> None:
    """As a broken connection does."""
    cancelled = asyncio.Event()

    class Waiting(Steps):
        async def Do(self, request: DoRequest, context: Context) -> DoResponse:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            return DoResponse()

    participant = Participant("steps", [Waiting()], begin=at_once)
    method: BytesMethod = participant.described().channel.unary_unary(DO)
    call = method(b"", metadata=grpc.aio.Metadata(*STEP))
    calling = asyncio.ensure_future(call)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    calling.cancel()
    async with asyncio.timeout(10):
        await cancelled.wait()
    assert calling.cancelled()
