"""A participant that hangs every call, or is full or down, with thousands of sagas queued behind it: others notice
nothing, memory stays bounded, and once it is back everything ends.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pytest

from amends import Retry, Saga
from amends.v1 import saga_pb2
from amends.v1 import saga_service_pb2 as pb
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.inside import Inside, announcement, inside
from tests.scenarios.raw import Reply, raw_steps
from tests.scenarios.sagas import Do, Undo
from tests.waiting import eventually, pause

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

pytestmark = [pytest.mark.scenario, pytest.mark.slow]

QUEUED, FEW = int(os.environ.get("SAGAS", "1500")), 300
"""SAGAS=5000 asks for more; memory is bounded the same, it only takes longer to start and to end them."""

ROOM = 200
SHARE = ROOM // 2
OTHERS = 60
NOBODY_LISTENS = "127.0.0.1:1"
STARTS_AT_ONCE = 32
GROWTH_MIB = 64
LEASE_S = 600
TASKS_OF_ONE = 10
"""More than a saga's driver, its call and what gRPC makes of that at both ends."""

BOUND_S = 120.0
SLACK, SLACK_S = 4, 0.05
"""A machine that does other things may be slower for a while, but not as slow as one that waits for the participant."""


def at(participant: str) -> Saga[ScenarioInput, None]:
    """A saga of one step at a participant, that is patient."""
    saga = Saga(f"at-{participant}", input=ScenarioInput, timeout=timedelta(minutes=10))
    patient = Retry(total_timeout=timedelta(minutes=5))
    step = saga.step("a", Do(name="a"), participant=participant, timeout=timedelta(seconds=1), retry=patient)
    step.compensated_by(Undo(name="a"), by_key=True)
    return saga


def in_memory() -> int:
    """How many sagas are driven, or being inserted."""
    names = (task.get_name() for task in asyncio.all_tasks())
    return sum(name.startswith("saga ") and name.count(" ") == 1 for name in names)


def resident_mib() -> float:
    """How much memory this process takes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass(slots=True)
class Most:
    """The greatest values that were seen."""

    sagas: int = 0
    tasks: int = 0

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self.sagas = max(self.sagas, in_memory())
            self.tasks = max(self.tasks, len(asyncio.all_tasks()))
            await pause()


@asynccontextmanager
async def watched() -> AsyncGenerator[Most]:
    """Watch how many sagas and tasks there are."""
    most = Most()
    watching = asyncio.create_task(most.watch())
    try:
        yield most
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def queue_up(coordinator: Inside, count: int) -> None:
    """Start sagas of the participant that doesn't answer."""
    saga, numbers = at("hung"), iter(range(count))

    async def start() -> None:
        for number in numbers:
            await coordinator.client.start(saga, ScenarioInput(), saga_id=f"hung-{number}")

    await asyncio.gather(*(start() for _ in range(STARTS_AT_ONCE)))


async def latencies(coordinator: Inside, prefix: str) -> list[float]:
    """How long sagas of another participant take, one after the other, in seconds."""
    saga, loop, times = at("quick"), asyncio.get_running_loop(), list[float]()
    for number in range(OTHERS):
        begun_s = loop.time()
        await coordinator.client.run(saga, ScenarioInput(), saga_id=f"{prefix}-{number}")
        times.append(loop.time() - begun_s)
    return times


async def exists(coordinator: Inside, states: Sequence[saga_pb2.Saga.State.ValueType]) -> bool:
    """Whether there is any saga in these states."""
    found = await coordinator.sagas.ListSagas(pb.ListSagasRequest(page_size=1, states=states))
    return bool(found.sagas)


async def ended(coordinator: Inside) -> None:
    """Return once every saga has ended."""
    async with asyncio.timeout(BOUND_S):
        while await exists(coordinator, [saga_pb2.Saga.STATE_RUNNING, saga_pb2.Saga.STATE_COMPENSATING]):
            await pause()


@pytest.mark.parametrize(
    ("how", "count"), [("hung", QUEUED), ("full", FEW), ("down", FEW)], ids=["hung", "full and hung", "down"]
)
async def test_sagas_of_others_do_not_wait_for_a_participant_that_hangs(tmp_path: Path, how: str, count: int) -> None:
    """L1, L2: as quick as before, with memory and tasks within the participant's share however many queue up."""
    async with AsyncExitStack() as stack:
        quick = await stack.enter_async_context(raw_steps())
        hung = await stack.enter_async_context(raw_steps({"a": [Reply(delay_s=BOUND_S)]}))
        coordinator = await stack.enter_async_context(
            inside(tmp_path, max_running_sagas=ROOM, participant_lease_s=LEASE_S)
        )
        await coordinator.announce("quick", quick.address)
        announced = announcement("hung", NOBODY_LISTENS if how == "down" else hung.address)
        announced.instance.capacity = 10 if how == "full" else 0
        await coordinator.registry.RegisterParticipant(announced)
        before = await latencies(coordinator, "before")
        base_tasks, base_mib = len(asyncio.all_tasks()), resident_mib()

        async with watched() as most:
            await queue_up(coordinator, count)
            meanwhile = await latencies(coordinator, "meanwhile")
        assert median(meanwhile) < SLACK * median(before) + SLACK_S
        assert 0 < most.sagas <= SHARE + STARTS_AT_ONCE, "the share of the one, and those that are being inserted"
        assert most.tasks - base_tasks < TASKS_OF_ONE * SHARE
        assert resident_mib() - base_mib < GROWTH_MIB

        hung.plan.clear()
        announced.instance.address = hung.address
        await coordinator.registry.RegisterParticipant(announced)
        await ended(coordinator)
        unhappy = [saga_pb2.Saga.STATE_COMPENSATED, saga_pb2.Saga.STATE_COMPENSATION_FAILED]
        assert not await exists(coordinator, unhappy)
        await eventually(lambda: in_memory() == 0, what="nothing stays in memory")
