"""A coordinator inside the test's process: real gRPC and a real SQLite ledger, ready in a fraction of a second."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc

from amends import SagaClient
from amends.v1 import registry_service_pb2, registry_service_pb2_grpc, saga_service_pb2_grpc
from amends_coordinator.bootstrap import serve
from amends_coordinator.settings import Settings
from scenario.v1 import scenario_pb2
from tests.unit.grpc_api.samples import SERVICE, files_of
from typed.v1 import typed_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from pathlib import Path

STOP_BOUND_S = 20


@dataclass(slots=True)
class Faults:
    """What asyncio itself complained about: exceptions that nobody looked at, tasks that were destroyed."""

    told: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])  # Any: asyncio's own context

    def hear(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Remember one complaint."""
        self.told.append(context)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """A coordinator that answers at `address`, and a client of it."""

    address: str
    client: SagaClient
    channel: grpc.aio.Channel
    sagas: saga_service_pb2_grpc.SagaServiceStub
    registry: registry_service_pb2_grpc.RegistryServiceStub

    async def announce(
        self, name: str, address: str, *, instance_id: str = "i-1", services: Sequence[str] = (SERVICE,)
    ) -> registry_service_pb2.RegisterParticipantResponse:
        """Announce a participant that serves the scenario's service, or these, with their real descriptors."""
        request = announcement(name, address, instance_id=instance_id, services=services)
        return await self.registry.RegisterParticipant(request)

    async def withdraw(self, name: str, instance_id: str = "i-1") -> None:
        """Take one instance out at once."""
        request = registry_service_pb2.DeregisterParticipantRequest(name=name, instance_id=instance_id)
        await self.registry.DeregisterParticipant(request)


def announcement(
    name: str, address: str, *, instance_id: str = "i-1", services: Sequence[str] = (SERVICE,)
) -> registry_service_pb2.RegisterParticipantRequest:
    """Announces a participant that serves the scenario's service, or these, with their real descriptors."""
    instance = registry_service_pb2.ParticipantInstance(instance_id=instance_id, address=address)
    files = files_of(scenario_pb2.DESCRIPTOR, typed_pb2.DESCRIPTOR)
    return registry_service_pb2.RegisterParticipantRequest(
        name=name, services=services, instance=instance, descriptors=files
    )


@asynccontextmanager
async def inside(data: Path, **given: object) -> AsyncGenerator[Inside]:
    """A coordinator that is up, with its ledger in `data`; stopped at the end, and nothing was left unlooked at."""
    quick: dict[str, object] = {
        "ledger_url": f"sqlite:///{data / 'ledger.db'}",
        "port": 0,
        "sweep_interval_s": 0.1,
        "connect_gate_s": 0.2,
        "stop_grace_s": 1,
    }
    faults = Faults()
    asyncio.get_running_loop().set_exception_handler(faults.hear)
    stopping, ready = asyncio.Event(), asyncio.Queue[str]()
    serving = asyncio.create_task(serve(Settings.load(**(quick | given)), ready=ready.put_nowait, stopping=stopping))
    try:
        address = await _first(ready, serving)
        async with grpc.aio.insecure_channel(address) as channel, SagaClient(address) as client:
            yield Inside(
                address=address,
                client=client,
                channel=channel,
                sagas=saga_service_pb2_grpc.SagaServiceStub(channel),
                registry=registry_service_pb2_grpc.RegistryServiceStub(channel),
            )
    finally:
        stopping.set()
        await asyncio.wait_for(serving, STOP_BOUND_S)
    assert not faults.told, f"asyncio complained: {faults.told}"


async def _first(ready: asyncio.Queue[str], serving: asyncio.Task[None]) -> str:
    """The address once it is ready, or the error that kept it from starting."""
    getting = asyncio.create_task(ready.get())
    await asyncio.wait((getting, serving), return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        getting.cancel()
        serving.result()
    return await getting
