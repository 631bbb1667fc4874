"""One incarnation of a coordinator that has no server, no network and no clock of its own, for `amends.testing`.

Engine, registry, definitions and public services are those of every coordinator. What comes from outside is handed in:
the time, the seed of its ids and of its chance, a ledger in memory that outlives it, and a channel to each participant.
Whoever rehearses stands around every call and every write, and may kill it: from then on it writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

import structlog

from amends_coordinator.calls.handed_channels import HandedChannels
from amends_coordinator.calls.reflection import Reflection
from amends_coordinator.calls.secrets import Secrets
from amends_coordinator.core.ids import Instant, NodeId, SagaId
from amends_coordinator.definitions.catalog import Catalog
from amends_coordinator.engine.announcements import Announcement
from amends_coordinator.engine.engine import Engine
from amends_coordinator.engine.registry import Registry
from amends_coordinator.engine.settings import EngineSettings
from amends_coordinator.engine.static_participants import StaticParticipants
from amends_coordinator.grpc_api.gate import Gate
from amends_coordinator.grpc_api.services import all_handlers
from amends_coordinator.ledger.watched import WatchedLedger
from amends_coordinator.telemetry.logs import LogTelemetry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    import grpc
    import grpc.aio
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from structlog.typing import FilteringBoundLogger

    from amends_coordinator.core.answer import Answer
    from amends_coordinator.ledger.memory import MemoryStore
    from amends_coordinator.ledger.watched import LedgerWrite
    from amends_coordinator.ports.participants import CallRequest

T = TypeVar("T")

LEASE_US = 100 * 366 * 86_400 * 1_000_000
"""How long a participant's announcement holds here: nobody renews it."""


class RehearsedClock:
    """Time as somebody else tells it, and chance from a seed."""

    def __init__(self, elapsed_s: Callable[[], float], *, begin: Instant, seed: str) -> None:
        self._elapsed_s = elapsed_s
        self._begin = begin
        self._random = random.Random(seed)

    def now(self) -> Instant:
        """See `ports.clock.Clock`."""
        return Instant(self._begin + round(self._elapsed_s() * 1e6))

    def elapsed_s(self) -> float:
        """See `ports.clock.Clock`."""
        return self._elapsed_s()

    def fraction(self) -> float:
        """See `ports.clock.Clock`."""
        return self._random.random()


class RehearsedIds:
    """Ids from a seed."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def saga_id(self) -> SagaId:
        """See `ports.clock.Ids`."""
        return SagaId(str(UUID(int=self._random.getrandbits(128), version=4)))

    def token(self) -> str:
        """See `ports.clock.Ids`."""
        return f"{self._random.getrandbits(128):032x}"


class Surrounding:
    """What a rehearsal does around the calls and writes of its coordinators. The defaults do nothing."""

    async def call(self, request: CallRequest, send: Callable[[], Awaitable[Answer]]) -> Answer:
        """Stands around a call: `send` makes it."""
        return await send()

    async def write(self, write: LedgerWrite, commit: Callable[[], Awaitable[T]]) -> T:
        """Stands around a write: `commit` makes it durable."""
        return await commit()

    def failed(self, saga_id: str, error: BaseException) -> None:
        """Hears of a fault of the coordinator itself. The saga is taken up again; "": the coordinator is gone."""


class RehearsedTelemetry(LogTelemetry):
    """Only what goes wrong in the coordinator itself is told: all else stands in the rehearsal's own timeline."""

    def __init__(self, surrounding: Surrounding) -> None:
        quiet: FilteringBoundLogger = structlog.wrap_logger(
            None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL)
        )
        super().__init__(quiet)
        self._surrounding = surrounding

    def driver_failed(self, saga_id: str, error: BaseException) -> None:
        """See the port."""
        self._surrounding.failed(saga_id, error)

    def saga_unreadable(self, saga_id: str, error: BaseException) -> None:
        """See the port."""
        self._surrounding.failed(saga_id, error)


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedParticipant:
    """A participant of a rehearsal."""

    name: str
    services: tuple[str, ...]
    descriptors: FileDescriptorSet
    channel: grpc.aio.Channel


class RehearsedCoordinator:
    """One incarnation. `start` it; `kill` or `stop` ends it."""

    def __init__(
        self,
        *,
        node: str,
        store: MemoryStore,
        clock: RehearsedClock,
        ids: RehearsedIds,
        participants: Sequence[RehearsedParticipant],
        surrounding: Surrounding,
        ledger_name: str,
        settings: Mapping[str, float],
    ) -> None:
        self._ledger = WatchedLedger(store, around=surrounding)
        self._surrounding = surrounding
        self._participants = participants
        telemetry = RehearsedTelemetry(surrounding)
        engine_settings = EngineSettings(**settings)  # type: ignore[arg-type]  # counts among them are whole numbers
        limit_bytes = engine_settings.payload_limit_bytes
        catalog = Catalog(ledger_name=ledger_name)
        self._registry = Registry(ledger=self._ledger, clock=clock, telemetry=telemetry, lease_us=LEASE_US)
        self._engine = Engine(
            ledger=self._ledger,
            participants=HandedChannels(
                {each.name: each.channel for each in participants},
                clock=clock,
                ledger_name=ledger_name,
                limit_bytes=limit_bytes,
                around=surrounding.call,
            ),
            directory=self._registry,
            clock=clock,
            ids=ids,
            telemetry=telemetry,
            catalog=catalog,
            settings=engine_settings,
            node=NodeId(node),
        )
        self.handlers = all_handlers(
            gate=Gate(),
            driving=self._engine,
            operating=self._engine.verbs,
            ledger=self._ledger,
            registry=self._registry,
            statics=StaticParticipants(
                registry=self._registry,
                describing=Reflection(secrets=Secrets(""), payload_limit_bytes=limit_bytes),
            ),
            catalog=catalog,
            clock=clock,
            telemetry=telemetry,
            ledger_name=ledger_name,
            payload_limit_bytes=limit_bytes,
        )
        """The handlers of its services."""
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take the ledger, know the participants, and drive sagas.

        Raises:
            DescriptorConflictError, DescriptorError: the participants contradict each other.
        """
        await self._engine.open()
        await self._registry.load()
        known = {each.participant.name for each in self._registry.participants()}
        for participant in self._participants:
            if participant.name not in known:
                await self._registry.announce(_announcement(participant))
        self._running = asyncio.create_task(self._engine.run(), name="run coordinator")
        self._running.add_done_callback(self._ended)

    def kill(self) -> None:
        """From now on it writes and reads nothing. `bury` removes what is left of it."""
        self._ledger.die()

    async def bury(self) -> None:
        """Cancel everything that a killed one was doing."""
        await self._end()

    async def stop(self) -> None:
        """End it in good order, without waiting for calls."""
        await self._end()
        await self._ledger.close()

    async def _end(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None
        await self._engine.stop(0.0)

    def _ended(self, running: asyncio.Task[None]) -> None:
        error = None if running.cancelled() else running.exception()
        if error is not None:
            self._surrounding.failed("", error)


def _announcement(participant: RehearsedParticipant) -> Announcement:
    return Announcement(
        participant=participant.name,
        services=participant.services,
        descriptors=participant.descriptors,
        instance_id=f"{participant.name}-1",
        address=f"{participant.name}:0",
        capacity=0,
    )
