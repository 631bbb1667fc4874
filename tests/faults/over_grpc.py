"""Plays a case over real gRPC in real time: a real coordinator and the participants' real servers, on loopback ports.

Only the fault is not the network's own: it stands between the coordinator's engine and its gRPC client.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc

from amends import ParticipantServer, SagaClient
from amends.testing.around import Around
from amends.testing.journal import Entry, Journal
from amends.testing.play import ENDED, Pace, Play
from amends_coordinator.bootstrap import Coordinator, Settings
from amends_coordinator.ledger.factory import MEMORY_URL, open_ledger
from tests.waiting import pause

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Sequence

    from amends.testing import Result
    from amends.testing.journal import Happening
    from amends.testing.matrix import AnyMatrix
    from amends.testing.script import Script
    from amends.v1 import saga_pb2
    from amends_coordinator.core.answer import Answer
    from amends_coordinator.ports.participants import CallRequest

QUICK = Pace(rest_s=0.2, too_late_s=3.0)
BOUND_S = 20.0


@dataclass(slots=True)
class RealStage:
    """See `amends.testing.play.Stage`."""

    client: SagaClient
    channel: grpc.aio.Channel
    journal: Journal = field(default_factory=Journal)
    tasks: set[asyncio.Task[Any]] = field(default_factory=set[asyncio.Task[Any]])

    async def standing(self, saga_id: str) -> saga_pb2.Saga:
        """Asks until the saga has ended or waits for a person."""
        async with asyncio.timeout(BOUND_S):
            while True:
                saga = await self.client.get(saga_id)
                if saga.state in ENDED or saga.attention_required:
                    return saga
                await pause()

    def kill(self) -> None:
        """Killed coordinators are played on virtual time, and as real processes by tests of their own."""
        raise NotImplementedError

    async def restart(self, participant: str | None = None) -> None:
        """Processes that die are played on virtual time; here they live on."""

    def timeline(self) -> str:
        """What has happened so far."""
        return self.journal.timeline()

    def coordinator_faults(self) -> Sequence[str]:
        """A real coordinator logs them."""
        return ()

    def note(self, what: Happening) -> None:
        """Write something into the journal."""
        self.journal.entries.append(Entry(asyncio.get_running_loop().time(), what))

    def later(self, work: Awaitable[Answer]) -> asyncio.Task[Answer]:
        """Do something beside everything else."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        return task


async def play_over_grpc(matrix: AnyMatrix, name: str) -> Result:
    """Play the case of this name, and judge."""
    play = Play(matrix, matrix.case(name), seed=0, pace=QUICK)
    async with matrix.world() as world, AsyncExitStack() as running:
        stage = await running.enter_async_context(_coordinator(play.script))
        for participant, servicers in world.participants().items():
            server = ParticipantServer(participant, coordinator=stage.client.target, port=0)
            for servicer in servicers:
                server.add(servicer)
            await running.enter_async_context(server)
        await play.play(stage, world)
    return play.result()


@asynccontextmanager
async def _coordinator(script: Script) -> AsyncGenerator[RealStage]:
    settings = Settings.load(ledger_url=MEMORY_URL, port=0, sweep_interval_s=0.1, stop_grace_s=1)
    coordinator = Coordinator(settings, ledger=open_ledger(MEMORY_URL, lease_s=settings.lease_ttl_s))
    address = f"127.0.0.1:{await coordinator.start()}"
    running = asyncio.create_task(coordinator.run(), name="run coordinator")
    try:
        async with SagaClient(address) as client, grpc.aio.insecure_channel(address) as channel:
            stage = RealStage(client, channel)
            _stand_around_calls(coordinator, stage, script)
            yield stage
            for task in stage.tasks:
                task.cancel()
            await asyncio.gather(*stage.tasks, return_exceptions=True)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await coordinator.stop(1.0)


def _stand_around_calls(coordinator: Coordinator, stage: RealStage, script: Script) -> None:
    participants = coordinator._participants  # pyright: ignore[reportPrivateUsage]  # nobody else may stand there
    around = Around(script, note=stage.note, later=stage.later, written=lambda: None, died=lambda _: None)
    send = participants.call

    async def call(request: CallRequest) -> Answer:
        return await around.call(request, lambda: send(request))

    participants.call = call  # type: ignore[method-assign]  # the engine keeps this very object
