"""One API over real gRPC on a free loopback port, on the ledger in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
import pytest

from amends.v1 import (
    operator_service_pb2_grpc,
    registry_service_pb2,
    registry_service_pb2_grpc,
    saga_service_pb2,
    saga_service_pb2_grpc,
)
from amends_coordinator.calls.reflection import Reflection
from amends_coordinator.calls.secrets import Secrets
from amends_coordinator.core.ids import NodeId, SagaId
from amends_coordinator.definitions.catalog import Catalog
from amends_coordinator.engine.driver import Surroundings
from amends_coordinator.engine.lease import Lease
from amends_coordinator.engine.registry import Registry
from amends_coordinator.engine.settings import EngineSettings
from amends_coordinator.engine.static_participants import StaticParticipants
from amends_coordinator.engine.verbs import Verbs
from amends_coordinator.grpc_api.server import Api, ApiSettings
from amends_coordinator.ledger.memory import MemoryLedger
from amends_coordinator.system import SystemClock, SystemIds
from scenario.v1 import scenario_pb2
from tests.integration.api.driving import TinyDriving
from tests.unit.engine.rig import Participants, Telemetry
from tests.unit.grpc_api.samples import SERVICE, ManualClock, errand, scenario_files

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from google.protobuf.message import Message

    from amends_coordinator.ports.ledger import StoredSaga

PAYLOAD_LIMIT_BYTES = 32_768
LEASE_US = 30_000_000


class FaultyLedger(MemoryLedger):
    """The ledger in memory, which raises what a test plants."""

    fault: Exception | None = None

    async def load(self, saga_id: SagaId) -> StoredSaga | None:
        """Raise the planted fault, or answer."""
        if self.fault is not None:
            raise self.fault
        return await super().load(saga_id)


@dataclass(frozen=True, slots=True)
class Served:
    """An API that answers, and everything behind and before it."""

    api: Api
    port: int
    ledger: FaultyLedger
    clock: ManualClock
    driving: TinyDriving
    nudged: list[SagaId]
    channel: grpc.aio.Channel
    sagas: saga_service_pb2_grpc.SagaServiceStub
    registry: registry_service_pb2_grpc.RegistryServiceStub
    operator: operator_service_pb2_grpc.OperatorServiceStub

    async def register(self, name: str = "errand") -> str:
        """Register the definition of the samples; its version."""
        request = saga_service_pb2.RegisterSagaDefinitionRequest(definition=errand(name=name))
        return (await self.sagas.RegisterSagaDefinition(request)).definition.version

    async def announce(self) -> registry_service_pb2.RegisterParticipantResponse:
        """Announce a participant that serves the definition's step."""
        request = registry_service_pb2.RegisterParticipantRequest(
            name="steps",
            services=[SERVICE],
            instance=registry_service_pb2.ParticipantInstance(instance_id="i-1", address="127.0.0.1:1", capacity=3),
            descriptors=scenario_files(),
        )
        return await self.registry.RegisterParticipant(request)


def start_request(
    saga_id: str = "s-1", *, name: str = "errand", version: str = "", payload: Message | None = None
) -> saga_service_pb2.StartSagaRequest:
    """A request to start a saga with a good input, unless another one is given."""
    request = saga_service_pb2.StartSagaRequest(saga_id=saga_id, definition_name=name, definition_version=version)
    request.input.Pack(payload if payload is not None else scenario_pb2.DoRequest(name="a", amount=10))
    return request


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """The API, started, and stopped at the end; the test's folder is its directory of secrets."""
    ledger, clock, catalog, node = FaultyLedger(), ManualClock(), Catalog(ledger_name="staging"), NodeId("n-1")
    await ledger.open(node, plans=catalog.plan)
    registry = Registry(ledger=ledger, clock=clock, telemetry=Telemetry(), lease_us=LEASE_US)
    around = Surroundings(
        ledger=ledger,
        participants=Participants(),
        directory=registry,
        clock=clock,
        telemetry=Telemetry(),
        settings=EngineSettings(),
        lease=Lease(SystemClock(), ttl_s=60),
        node=node,
    )
    nudged: list[SagaId] = []
    verbs = Verbs(around, SystemIds(), nudge=nudged.append)
    driving = TinyDriving(ledger=ledger, catalog=catalog, clock=clock, ids=SystemIds(), node=node)
    settings = ApiSettings(host="127.0.0.1", port=0, ledger_name="staging", payload_limit_bytes=PAYLOAD_LIMIT_BYTES)
    api = Api(
        settings,
        driving=driving,
        operating=verbs,
        ledger=ledger,
        registry=registry,
        statics=StaticParticipants(
            registry=registry,
            describing=Reflection(secrets=Secrets(str(tmp_path)), payload_limit_bytes=PAYLOAD_LIMIT_BYTES),
        ),
        catalog=catalog,
        clock=clock,
        telemetry=Telemetry(),
    )
    port = api.bind()
    await api.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Served(
            api=api,
            port=port,
            ledger=ledger,
            clock=clock,
            driving=driving,
            nudged=nudged,
            channel=channel,
            sagas=saga_service_pb2_grpc.SagaServiceStub(channel),
            registry=registry_service_pb2_grpc.RegistryServiceStub(channel),
            operator=operator_service_pb2_grpc.OperatorServiceStub(channel),
        )
    driving.open_door.set()
    await api.stop(1)
    await ledger.close()
