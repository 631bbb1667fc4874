"""A wired coordinator in this process: health follows the ledger, a node shut out ends, what was begun is ended."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any

import grpc
import pytest

# grpcio-health-checking ships no types.
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]  # ships no types
from structlog.testing import capture_logs

from amends.v1 import saga_service_pb2 as pb
from amends.v1 import saga_service_pb2_grpc
from amends_coordinator.bootstrap import Coordinator, serve
from amends_coordinator.declared_participants import DeclaredParticipants
from amends_coordinator.grpc_api.server import CannotListenError
from amends_coordinator.ledger.memory import MemoryLedger
from amends_coordinator.ports.ledger import LedgerError, LedgerUnavailableError, NewSaga, NodeFencedError, Started
from amends_coordinator.settings import Settings
from amends_coordinator.telemetry import names
from tests.integration.api.conftest import start_request
from tests.integration.api.refusals import refused
from tests.unit.grpc_api.samples import errand
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from amends_coordinator.core.ids import Instant

BOUND_S = 20
HEALTHY, SICK = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


class BreakableLedger(MemoryLedger):
    """The ledger in memory; its writes raise what a test plants."""

    fault: LedgerError | None = None

    async def heartbeat(self, now: Instant) -> None:
        """Raise the planted fault, or beat."""
        if self.fault is not None:
            raise self.fault
        await super().heartbeat(now)

    async def start(self, new: NewSaga) -> Started:
        """Raise the planted fault, or start."""
        if self.fault is not None:
            raise self.fault
        return await super().start(new)


def settings(**given: object) -> Settings:
    """Quick sweeps, a free port, a ledger in memory."""
    quick: dict[str, object] = {
        "ledger_url": "memory:",
        "port": 0,
        "sweep_interval_s": 0.02,
        "heartbeat_interval_s": 0.02,
        "stop_grace_s": 1,
    }
    return Settings.load(**(quick | given))


@asynccontextmanager
async def running(ledger: MemoryLedger) -> AsyncGenerator[tuple[grpc.aio.Channel, asyncio.Task[None]]]:
    """A coordinator that answers and sweeps; its channel and the task that runs it."""
    coordinator = Coordinator(settings(), ledger=ledger)
    port = await coordinator.start()
    task = asyncio.create_task(coordinator.run())
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel, task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await coordinator.stop(1)


async def health_becomes(channel: grpc.aio.Channel, wanted: int) -> None:
    """Watch health until it is as wanted."""
    stub: Any = health_pb2_grpc.HealthStub(channel)  # Any: untyped, see the imports
    watch: Any = stub.Watch(health_pb2.HealthCheckRequest())
    async with asyncio.timeout(BOUND_S):
        while (await watch.read()).status != wanted:
            pass
    watch.cancel()


async def test_what_fails_beside_the_engine_is_told_and_sagas_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """L2: a task that ends by itself does not wait for the end of the process to be heard of."""

    async def fail(_: DeclaredParticipants) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(DeclaredParticipants, "run", fail)
    with capture_logs() as logged:
        async with running(MemoryLedger()) as (channel, task):
            await eventually(lambda: any(line["event"] == names.TASK_FAILED for line in logged), what="it is told")
            await health_becomes(channel, HEALTHY)
            assert not task.done()


async def test_health_follows_the_ledger() -> None:
    """Database down: starts answer UNAVAILABLE and health says so; everything goes on by itself when it is back."""
    ledger = BreakableLedger()
    async with running(ledger) as (channel, _):
        stub = saga_service_pb2_grpc.SagaServiceStub(channel)
        await stub.RegisterSagaDefinition(pb.RegisterSagaDefinitionRequest(definition=errand()))
        await health_becomes(channel, HEALTHY)
        ledger.fault = LedgerUnavailableError("disk full")
        await health_becomes(channel, SICK)
        assert (await refused(stub.StartSaga(start_request()))).reason == "LEDGER_UNAVAILABLE"
        ledger.fault = None
        await health_becomes(channel, HEALTHY)
        assert (await stub.StartSaga(start_request())).started


async def test_a_node_that_is_shut_out_ends() -> None:
    """S7: a fenced incarnation doesn't go on."""
    ledger = BreakableLedger()
    async with running(ledger) as (_, task):
        ledger.fault = NodeFencedError("shut out")
        await asyncio.wait((task,), timeout=BOUND_S)
        assert isinstance(task.exception(), NodeFencedError)


async def test_the_next_incarnation_begins_where_one_was_shut_out(tmp_path: Path) -> None:
    """S7, L1: the process drops what it holds, and goes on at the same address as a new incarnation."""
    file = tmp_path / "ledger.db"
    stopping, ready = asyncio.Event(), asyncio.Queue[str]()
    serving = asyncio.create_task(
        serve(settings(ledger_url=f"sqlite:///{file}"), ready=ready.put_nowait, stopping=stopping)
    )
    address = await ready.get()
    with closing(sqlite3.connect(file, isolation_level=None)) as outside:
        outside.execute("UPDATE node SET fenced = 1")
        await eventually(
            lambda: outside.execute("SELECT fenced FROM node ORDER BY fenced").fetchall() == [(0,), (1,)],
            what="a new incarnation beside the one that was shut out",
        )
    async with grpc.aio.insecure_channel(address) as channel:
        await health_becomes(channel, HEALTHY)
        stub = saga_service_pb2_grpc.SagaServiceStub(channel)
        await stub.RegisterSagaDefinition(pb.RegisterSagaDefinitionRequest(definition=errand()))
        assert (await stub.StartSaga(start_request())).started
    assert ready.empty(), "the address is told once"
    stopping.set()
    await asyncio.wait_for(serving, BOUND_S)


async def test_serve_tells_its_address_and_stops() -> None:
    """In one process: ready once requests are answered, over once it is told to stop."""
    stopping, ready = asyncio.Event(), asyncio.Queue[str]()
    serving = asyncio.create_task(serve(settings(), ready=ready.put_nowait, stopping=stopping))
    address = await ready.get()
    async with grpc.aio.insecure_channel(address) as channel:
        stub = saga_service_pb2_grpc.SagaServiceStub(channel)
        assert (await stub.ListSagas(pb.ListSagasRequest())) == pb.ListSagasResponse()
    stopping.set()
    await asyncio.wait_for(serving, BOUND_S)


async def test_serve_ends_when_it_is_cancelled() -> None:
    """Cancelling is a way to stop, too: nothing is left running, and the port is free again."""
    ready = asyncio.Queue[str]()
    serving = asyncio.create_task(serve(settings(), ready=ready.put_nowait))
    port = int((await ready.get()).rpartition(":")[2])
    with pytest.raises(CannotListenError):
        await serve(settings(port=port))
    serving.cancel()
    await asyncio.wait((serving,), timeout=BOUND_S)
    assert serving.cancelled()
    stopping = asyncio.Event()
    stopping.set()
    await asyncio.wait_for(serve(settings(port=port), stopping=stopping), BOUND_S)
