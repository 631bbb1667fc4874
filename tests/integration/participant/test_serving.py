"""Starting and stopping: ports, health, calls in hand, signals."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2  # type: ignore[import-untyped] # ships no types

from amends import CannotListenError, InvalidParticipantError, NotStartedError, ParticipantServer
from shop.inventory.v1.inventory_pb2 import ReleaseRequest, ReleaseResponse, ReserveRequest, ReserveResponse
from shop.inventory.v1.inventory_pb2_grpc import InventoryServiceStub
from tests.conftest import CHECKOUT
from tests.integration.participant.calls import (
    NO_COORDINATOR,
    SERVICE,
    Inventory,
    PlainInventory,
    ReserveContext,
    as_step,
)
from tests.integration.participant.registry import Registry, serving_registry


async def health_of(channel: grpc.aio.Channel, service: str) -> str:
    """What the standard health service says, by name."""
    check: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/grpc.health.v1.Health/Check")
    answer = await check(health_pb2.HealthCheckRequest(service=service).SerializeToString(), timeout=10)
    status = health_pb2.HealthCheckResponse.FromString(answer).status
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(status))


async def test_health_is_served_for_the_process_and_each_service() -> None:
    """L1: whoever balances or supervises sees that it serves."""
    server = ParticipantServer("inventory", coordinator=NO_COORDINATOR)
    server.add(Inventory())
    async with server, grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        assert [await health_of(channel, name) for name in ("", SERVICE)] == ["SERVING", "SERVING"]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health_of(channel, "shop.v1.Nothing")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_taken_port_is_a_clear_error() -> None:
    """L2: two processes never share a port in silence, and the second says which port and what to do."""
    first = ParticipantServer("inventory", coordinator=NO_COORDINATOR)
    first.add(Inventory())
    async with first:
        second = ParticipantServer("inventory", coordinator=NO_COORDINATOR, port=first.port)
        second.add(Inventory())
        with pytest.raises(CannotListenError, match=rf"can't listen on 127\.0\.0\.1:{first.port}: another process"):
            await second.serve()
        with pytest.raises(NotStartedError):
            _ = second.port


async def test_what_needs_a_start_or_comes_too_late_is_told() -> None:
    """L2: misuse is a sentence, not an odd state."""
    server = ParticipantServer("inventory", coordinator=NO_COORDINATOR)
    with pytest.raises(NotStartedError, match=r"await start\(\) first"):
        _ = server.port
    with pytest.raises(InvalidParticipantError, match=r"add\(\) a servicer first"):
        await server.start()
    server.add(Inventory())
    await server.stop()
    async with server:
        with pytest.raises(InvalidParticipantError, match="runs already"):
            server.add(Inventory())
        with pytest.raises(InvalidParticipantError, match="runs already"):
            await server.start()
        await server.stop()
        await server.stop()


async def test_a_stop_finishes_the_calls_in_hand() -> None:
    """S4: a call that began gets its answer although the participant stops; only then is it taken out."""
    begun, go_on, registry = asyncio.Event(), asyncio.Event(), Registry()

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        begun.set()
        await go_on.wait()
        return ReserveResponse(reservation_id="r-1")

    async with serving_registry(registry) as port, asyncio.timeout(20):
        server = ParticipantServer("inventory", coordinator=f"127.0.0.1:{port}", stop_grace_s=10)
        server.add(Inventory(behaviour))
        serving = asyncio.create_task(server.serve())
        await registry.next_registered()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            call = asyncio.ensure_future(_reserve(channel))
            await begun.wait()
            stopping = asyncio.create_task(server.stop())
            await _refused(channel)
            assert registry.deregistered.empty()
            go_on.set()
            assert (await call).reservation_id == "r-1"
        await stopping
        await serving
        assert not registry.deregistered.empty()


async def test_calls_that_outlast_the_grace_are_cancelled_and_clean_up() -> None:
    """S4: a stop is bounded, and what it cuts off may roll back before the process goes on."""
    begun, cleaned_up = asyncio.Event(), asyncio.Event()

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned_up.set()
        return ReserveResponse()

    server = ParticipantServer("inventory", coordinator=NO_COORDINATOR, stop_grace_s=0.1)
    server.add(Inventory(behaviour))
    async with asyncio.timeout(20):
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            call = asyncio.ensure_future(_reserve(channel))
            await begun.wait()
            await server.stop()
            assert cleaned_up.is_set()
            with pytest.raises(grpc.aio.AioRpcError):
                await call


async def test_a_thread_that_outlasts_the_grace_does_not_hold_up_the_stop(caplog: pytest.LogCaptureFixture) -> None:
    """L1: a stop is bounded although a thread can't be stopped, and says what it leaves behind."""
    begun, go_on = threading.Event(), threading.Event()

    def behaviour(request: ReserveRequest, context: grpc.ServicerContext) -> ReserveResponse:
        begun.set()
        go_on.wait(20)
        return ReserveResponse()

    server = ParticipantServer("inventory", coordinator=NO_COORDINATOR, stop_grace_s=0)
    server.add(PlainInventory(behaviour))
    async with asyncio.timeout(20):
        await server.start()
        async with grpc.aio.insecure_channel(server.address) as channel:
            call = asyncio.ensure_future(_reserve(channel))
            await asyncio.to_thread(begun.wait)
            await server.stop()
            with pytest.raises(grpc.aio.AioRpcError):
                await call
        go_on.set()
    assert "stops with 1 calls that did not end" in caplog.text


@asynccontextmanager
async def participant_process(coordinator: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """A participant in a process of its own, killed at the end if it is still there."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-W", "error", "-m", "tests.integration.participant.process", coordinator),
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
async def test_a_signal_ends_a_process_cleanly(number: signal.Signals) -> None:
    """L1: told to stop, a process finishes its calls, takes itself out, says nothing bad and exits with 0."""
    registry = Registry()
    async with (
        asyncio.timeout(60),
        serving_registry(registry) as port,
        participant_process(f"127.0.0.1:{port}") as process,
    ):
        instance = (await registry.registered.get()).instance
        async with grpc.aio.insecure_channel(instance.address) as channel:
            states = _watched(channel)
            assert await anext(states) == "SERVING"
            call = asyncio.ensure_future(_reserve(channel))
            assert process.stdout is not None
            assert process.stdin is not None
            await process.stdout.readuntil(b"reserving")
            in_thread = asyncio.ensure_future(_release(channel))
            await process.stdout.readuntil(b"releasing")
            process.send_signal(number)
            assert [state async for state in states] == ["NOT_SERVING"]
            process.stdin.write(b"go on\ngo on\n")
            assert (await call).reservation_id == "r-1"
            assert await in_thread == ReleaseResponse()
        output, errors = await process.communicate()
        assert (process.returncode, errors) == (0, b"")
        assert b"participant inventory stopped" in output
        assert (await registry.next_deregistered()).instance_id == instance.instance_id


async def _watched(channel: grpc.aio.Channel) -> AsyncGenerator[str]:
    """What health says about the service, until the stream ends."""
    watch: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream("/grpc.health.v1.Health/Watch")
    async for answer in watch(health_pb2.HealthCheckRequest(service=SERVICE).SerializeToString(), timeout=30):
        status = health_pb2.HealthCheckResponse.FromString(answer).status
        yield str(health_pb2.HealthCheckResponse.ServingStatus.Name(status))


async def _reserve(channel: grpc.aio.Channel) -> ReserveResponse:
    request = ReserveRequest(sku="sku-1", quantity=1)
    return await InventoryServiceStub(channel).Reserve(request, metadata=as_step(), timeout=30)


async def _release(channel: grpc.aio.Channel) -> ReleaseResponse:
    metadata = as_step(idempotency_key="order-1/reserve/compensation", amends_direction="compensation")
    return await InventoryServiceStub(channel).Release(ReleaseRequest(), metadata=metadata, timeout=30)


def assert_unavailable(error: grpc.aio.AioRpcError) -> None:
    """Nobody listens any more."""
    assert error.code() is grpc.StatusCode.UNAVAILABLE


async def _refused(channel: grpc.aio.Channel) -> None:
    """Returns once new calls are refused because the port is closed."""
    while True:
        try:
            await health_of(channel, "")
        except grpc.aio.AioRpcError as error:
            # A call that arrives in the very moment of closing is CANCELLED by gRPC without being run.
            if error.code() is not grpc.StatusCode.CANCELLED:
                assert_unavailable(error)
                return
