"""The stage of a timeline: a coordinator on one of the databases, a participant, and the network between them."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import grpc

from amends import SagaClient
from amends.v1 import registry_service_pb2, registry_service_pb2_grpc, saga_pb2
from tests.scenarios.desk import Desk
from tests.scenarios.inside import Inside, inside
from tests.scenarios.journal import Journal
from tests.scenarios.oracle import judge
from tests.scenarios.processes import Process, coordinator
from tests.timelines.network import Network, between
from tests.timelines.participant import BARRIER, KEY, PLAIN, Participant, participating
from tests.unit.grpc_api.samples import files_of
from tests.waiting import pause
from timeline.v1 import timeline_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from amends import Saga, SagaHandle

BOUND = timedelta(seconds=30)

PARTICIPANT_LEASE_S = 600
"""The participant announces itself once, and outlives every timeline."""


@dataclass(slots=True)
class Stage:
    """Everything of a timeline. `s` is the saga that is meant where no id is given."""

    client: SagaClient
    participant: Participant
    network: Network
    journal: Journal
    here: Inside | None = None
    definitions: dict[str, Saga[Any, Any]] = field(default_factory=dict[str, "Saga[Any, Any]"])  # their own types each
    _seen: dict[str, saga_pb2.Saga] = field(default_factory=dict[str, saga_pb2.Saga])

    @property
    def desk(self) -> Desk:
        """The operator's desk, where the coordinator runs in the test's own process."""
        if self.here is None:
            raise AssertionError("this stage's coordinator is a process of its own")
        return Desk(self.here)

    async def start(self, saga: Saga[timeline_pb2.TimelineInput, None], saga_id: str = "s") -> SagaHandle[None]:
        """Start a saga."""
        self.definitions[saga_id] = saga
        return await self.client.start(saga, timeline_pb2.TimelineInput(), saga_id=saga_id)

    async def once(self, condition: Callable[[saga_pb2.Saga], bool], saga_id: str = "s") -> saga_pb2.Saga:
        """The saga once a condition holds; the test's own timeout bounds it."""
        while not condition(saga := await self.client.get(saga_id)):
            await pause()
        return saga

    async def rests(self, saga_id: str = "s") -> saga_pb2.Saga:
        """The saga once it has ended, or waits for a person; judged by the journal."""
        saga = await self.once(at_rest, saga_id)
        self.judge(saga)
        return saga

    def judge(self, saga: saga_pb2.Saga) -> None:
        """Fail if the journal contradicts the saga."""
        judge(saga, self.journal, self.definitions.get(saga.saga_id))
        if saga.state in ENDED:
            self._seen[saga.saga_id] = saga

    async def look_back(self) -> None:
        """Sagas that had ended when they were judged have not changed since (S8)."""
        for saga_id, saga in self._seen.items():
            now = await self.client.get(saga_id)
            assert (now.state, now.output, now.end_time) == (saga.state, saga.output, saga.end_time), "S8"


ENDED = frozenset({saga_pb2.Saga.STATE_COMMITTED, saga_pb2.Saga.STATE_COMPENSATED})


def at_rest(saga: saga_pb2.Saga) -> bool:
    """Whether it has ended or waits for a person."""
    return saga.state in (*ENDED, saga_pb2.Saga.STATE_COMPENSATION_FAILED) or saga.attention_required


async def announce(registry: registry_service_pb2_grpc.RegistryServiceStub, address: str) -> None:
    """Announce each service as a participant of its own: what one remembers, the others don't know."""
    for service in (BARRIER, KEY, PLAIN):
        await registry.RegisterParticipant(
            registry_service_pb2.RegisterParticipantRequest(
                name=service.rpartition(".")[2].removesuffix("Service").lower(),
                services=[service],
                instance=registry_service_pb2.ParticipantInstance(instance_id="i-1", address=address),
                descriptors=files_of(timeline_pb2.DESCRIPTOR),
            )
        )


@asynccontextmanager
async def staged(ledger_url: str, data: Path, **settings: object) -> AsyncGenerator[Stage]:
    """A stage whose coordinator runs in the test's own process."""
    async with AsyncExitStack() as stack:
        journal = Journal(data / "journal.jsonl")
        participant = await stack.enter_async_context(participating(journal))
        network = await stack.enter_async_context(between(journal, participant.address))
        given: dict[str, object] = {"ledger_url": ledger_url, "participant_lease_s": PARTICIPANT_LEASE_S}
        here = await stack.enter_async_context(inside(data, **(given | settings)))
        await announce(here.registry, network.address)
        stage = Stage(here.client, participant, network, journal, here)
        yield stage
        await stage.look_back()


@dataclass(slots=True)
class Killable:
    """A stage whose coordinator is a process that can be killed."""

    stage: Stage
    process: Process


@asynccontextmanager
async def killable(ledger_url: str, data: Path, **settings: str) -> AsyncGenerator[Killable]:
    """A stage whose coordinator is a process, with a short lease; it is stopped at the end, whatever happens."""
    process = coordinator(data, AMENDS_LEDGER_URL=ledger_url, **(SHORT_LEASE | settings))
    async with AsyncExitStack() as stack:
        journal = Journal(data / "journal.jsonl")
        participant = await stack.enter_async_context(participating(journal))
        network = await stack.enter_async_context(between(journal, participant.address))
        stack.push_async_callback(process.stop)
        await process.start()
        async with grpc.aio.insecure_channel(process.address) as channel:
            await announce(registry_service_pb2_grpc.RegistryServiceStub(channel), network.address)
        client = await stack.enter_async_context(SagaClient(process.address, unavailable_timeout=BOUND))
        stage = Stage(client, participant, network, journal)
        yield Killable(stage, process)
        await stage.look_back()
    assert "Traceback" not in process.log_text(), process.log_text()


SHORT_LEASE = {
    "AMENDS_LEASE_TTL_S": "1.5",
    "AMENDS_HEARTBEAT_INTERVAL_S": "0.3",
    "AMENDS_PARTICIPANT_LEASE_S": str(PARTICIPANT_LEASE_S),
}
