"""One service of the shop as a real process: it announces itself, survives a kill with its memory, and ends cleanly."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from amends.v1.registry_service_pb2 import (
    DeregisterParticipantRequest,
    DeregisterParticipantResponse,
    ListParticipantsRequest,
    ListParticipantsResponse,
    RegisterParticipantRequest,
    RegisterParticipantResponse,
)
from amends.v1.registry_service_pb2_grpc import RegistryServiceServicer, add_RegistryServiceServicer_to_server
from shop.demo.books import query, read_calls
from shop.inventory.v1.inventory_pb2 import ReserveRequest
from shop.inventory.v1.inventory_pb2_grpc import InventoryServiceStub
from tests.participants.serving import as_step
from tests.waiting import eventually

START_TIMEOUT_S = 30.0
RESERVE = ReserveRequest(sku="kettle", quantity=1)


class Registry(RegistryServiceServicer):
    """Takes announcements and tells where the announced participants listen."""

    def __init__(self) -> None:
        self.addresses: asyncio.Queue[str] = asyncio.Queue()
        self._known: set[str] = set()

    async def RegisterParticipant(
        self,
        request: RegisterParticipantRequest,
        context: grpc.aio.ServicerContext[RegisterParticipantRequest, Awaitable[RegisterParticipantResponse]],
    ) -> RegisterParticipantResponse:
        if request.instance.instance_id not in self._known:
            self._known.add(request.instance.instance_id)
            await self.addresses.put(request.instance.address)
        return RegisterParticipantResponse(lease_timeout=Duration(seconds=30))

    async def DeregisterParticipant(
        self,
        request: DeregisterParticipantRequest,
        context: grpc.aio.ServicerContext[DeregisterParticipantRequest, Awaitable[DeregisterParticipantResponse]],
    ) -> DeregisterParticipantResponse:
        return DeregisterParticipantResponse()

    async def ListParticipants(
        self,
        request: ListParticipantsRequest,
        context: grpc.aio.ServicerContext[ListParticipantsRequest, Awaitable[ListParticipantsResponse]],
    ) -> ListParticipantsResponse:
        return ListParticipantsResponse()


@asynccontextmanager
async def registry() -> AsyncGenerator[tuple[Registry, str]]:
    """A registry and where it listens."""
    servicer, server = Registry(), grpc.aio.server()
    add_RegistryServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield servicer, f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@contextmanager
def inventory_process(coordinator: str, data: Path, *options: str) -> Generator[subprocess.Popen[bytes]]:
    """The inventory service; whatever happens, it is gone at the end."""
    command = [sys.executable, "-m", "shop.process", "inventory", "--coordinator", coordinator, "--data", str(data)]
    with subprocess.Popen([*command, *options], env=os.environ | {"PYTHONUNBUFFERED": "1"}) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


async def next_address(servicer: Registry) -> str:
    """Where the participant that announces itself next listens."""
    async with asyncio.timeout(START_TIMEOUT_S):
        return await servicer.addresses.get()


@pytest.mark.crash
async def test_a_killed_service_remembers_the_effect_whose_answer_was_lost(tmp_path: Path) -> None:
    """S2: the process dies between effect and reply; started again, it answers the same key from its memory."""
    hold = ("--hold-reply", "Reserve:sku=kettle:60")
    async with registry() as (servicer, coordinator):
        with inventory_process(coordinator, tmp_path, *hold) as process:
            async with grpc.aio.insecure_channel(await next_address(servicer)) as channel:
                lost = InventoryServiceStub(channel).Reserve(RESERVE, metadata=as_step("reserve"))
                made = "SELECT reservation_id FROM reservation"
                await eventually(lambda: bool(query(tmp_path / "inventory.db", made)), what="it is reserved")
                process.kill()
                with pytest.raises(grpc.aio.AioRpcError):
                    await lost
        with inventory_process(coordinator, tmp_path, *hold) as process:
            async with grpc.aio.insecure_channel(await next_address(servicer)) as channel:
                answer = await InventoryServiceStub(channel).Reserve(
                    RESERVE, metadata=as_step("reserve", attempt=2), timeout=START_TIMEOUT_S
                )
            process.send_signal(signal.SIGTERM)
            assert process.wait(START_TIMEOUT_S) == 0
    assert query(tmp_path / "inventory.db", made) == [(answer.reservation_id,)]
    assert [(call.outcome, call.effect_made) for call in read_calls(tmp_path, "inventory")] == [
        (None, True),
        ("OK", False),
    ]


def test_a_wrong_hold_is_explained(tmp_path: Path) -> None:
    """Exit code 2 and a sentence, no traceback."""
    command = [
        sys.executable,
        "-m",
        "shop.process",
        "inventory",
        "--coordinator",
        "127.0.0.1:1",
        "--data",
        str(tmp_path),
    ]
    ended = subprocess.run(
        [*command, "--hold-reply", "nonsense"], capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False
    )
    assert ended.returncode == 2
    assert "METHOD:FIELD=VALUE:SECONDS" in ended.stderr
    assert "Traceback" not in ended.stderr
