"""What is in memory and what waits in the ledger: a bound that holds, turns that are kept, waiters that are told."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest

from amends_coordinator.core.ids import NodeId, SagaId
from amends_coordinator.core.states import SagaState
from amends_coordinator.engine.driver import Driver
from amends_coordinator.ledger.memory import MemoryLedger
from amends_coordinator.ports.driving import StoppingError
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.unit.engine.ledgers import LyingLedger, Plan
from tests.unit.engine.rig import LOST, REFUSED, Rig, rig, succeed
from tests.waiting import eventually, pause

if TYPE_CHECKING:
    from amends_coordinator.core.answer import Answer
    from amends_coordinator.ports.participants import CallRequest

ROOM = 5
MANY = 50


async def test_fifty_sagas_with_room_for_five() -> None:
    """L1, L2: all end, in the order of their starts but for those side by side; never are more in memory than fit."""
    most = 0
    stages: list[Rig] = []

    async def answer(request: CallRequest) -> Answer:
        nonlocal most
        most = max(most, stages[0].running_sagas)
        return await succeed(request)

    async with rig(MemoryLedger(), answer=answer, max_running_sagas=ROOM) as stage:
        stages.append(stage)
        await asyncio.gather(*(stage.start(f"s-{n}") for n in range(MANY)))
        for number in range(MANY):
            assert (await stage.end(f"s-{number}")).saga.state is SagaState.COMMITTED
        first = [call.saga_id for call in stage.participants.calls if call.step == "a"]
    assert len(first) == len(set(first)) == MANY
    assert most <= ROOM
    places = [abs(place - int(saga_id.removeprefix("s-"))) for place, saga_id in enumerate(first)]
    assert max(places) < 2 * ROOM, first


async def test_new_sagas_wait_behind_those_in_the_ledger() -> None:
    """L1: under a load that never ends, a saga that found no room isn't passed over by later ones for ever."""
    door = asyncio.Event()

    async def answer(request: CallRequest) -> Answer:
        await door.wait()
        return await succeed(request)

    async with rig(MemoryLedger(), answer=answer, max_running_sagas=1, sweep_interval_s=0.5) as stage:
        await stage.start("s-0")
        await stage.start("s-1")
        door.set()
        await stage.end("s-0")
        for number in range(2, 6):
            await stage.start(f"s-{number}")
        ends = [await stage.end(f"s-{number}") for number in range(6)]
        order = [call.saga_id for call in stage.participants.calls if call.step == "a"]
    assert order == [f"s-{number}" for number in range(6)]
    assert all(stored.saga.state is SagaState.COMMITTED for stored in ends)


async def test_room_is_used_as_soon_as_there_is_some() -> None:
    """A pass is made early where sagas wait for room: the sweep's interval isn't what limits them."""
    async with rig(MemoryLedger(), max_running_sagas=1, sweep_interval_s=5.0) as stage:
        async with asyncio.timeout(5):
            await asyncio.gather(*(stage.start(f"s-{n}") for n in range(10)))
            for number in range(10):
                await stage.end(f"s-{number}")


async def test_who_waits_for_a_saga_that_left_memory_hears_of_its_end() -> None:
    """A saga in back-off for longer than it may stay in memory leaves it, comes back by its due time, and wakes those
    who have waited all the while.
    """
    gone = asyncio.Event()

    async def answer(request: CallRequest) -> Answer:
        if request.attempt < 4:
            return LOST
        assert gone.is_set()
        return await succeed(request)

    async with rig(MemoryLedger(), answer=answer, idle_unload_s=0.001) as stage:
        await stage.start("s")
        waiting = [asyncio.create_task(stage.end("s")) for _ in range(3)]
        await eventually(lambda: stage.running_sagas == 0, what="it leaves memory")
        gone.set()
        for stored in await asyncio.gather(*waiting):
            assert stored.saga.state is SagaState.COMMITTED
        assert stage.participants.sides("s")[:4] == [f"a/action#{n}" for n in (1, 2, 3, 4)]


async def test_waiting_ends_with_its_time_and_when_the_node_stops() -> None:
    """Whoever waits gets the saga as it is; a client that goes away leaves nothing behind."""

    async def answer(request: CallRequest) -> Answer:
        await asyncio.Event().wait()
        return await succeed(request)

    async with rig(MemoryLedger(), answer=answer) as stage:
        await stage.start("s")
        now = await stage.engine.wait(SagaId("s"), timeout_s=0.01)
        assert now is not None
        assert now.saga.state is SagaState.RUNNING
        assert await stage.engine.wait(SagaId("nobody"), timeout_s=10) is None
        gone = asyncio.create_task(stage.engine.wait(SagaId("s"), timeout_s=10))
        stays = asyncio.create_task(stage.engine.wait(SagaId("s"), timeout_s=10))
        await pause()
        gone.cancel()
        await pause()
        await stage.engine.stop(0.01)
        told = await stays
        assert told is not None
        assert told.saga.state is SagaState.RUNNING
        with pytest.raises(StoppingError):
            await stage.start("late")


async def test_a_stopped_node_hands_over_and_the_next_one_ends_everything() -> None:
    """L1, S2: calls under way are cancelled and count as unknown, nothing is called after the stop, the next
    incarnation repeats them with their keys.
    """
    first = MemoryLedger()

    async def hang(request: CallRequest) -> Answer:
        if request.step == "b":
            await asyncio.Event().wait()
        return await succeed(request)

    async with rig(first, answer=hang) as stage:
        await asyncio.gather(*(stage.start(f"s-{n}") for n in range(20)))
        await eventually(lambda: len(stage.participants.calls) == 40, what="all are in step b")
    called = list(stage.participants.calls)
    async with rig(MemoryLedger(first.store), node=NodeId("node-2")) as later:
        for number in range(20):
            stored = await later.end(f"s-{number}")
            assert stored.saga.state is SagaState.COMMITTED
            assert later.participants.sides(f"s-{number}") == ["b/action#2"]
    assert stage.participants.calls == called


def ours() -> list[str]:
    """The tasks that drive sagas and call participants."""
    names = (task.get_name() for task in asyncio.all_tasks())
    return [name for name in names if name.startswith(("saga ", "call "))]


async def test_nothing_of_a_saga_stays_behind() -> None:
    """Memory and tasks are back to the base line once sagas have ended, also those that were given up on the way."""

    async def answer(request: CallRequest) -> Answer:
        number = int(request.saga_id.removeprefix("s-"))
        return REFUSED if (request.step, number % 2) == ("b", 1) else await succeed(request)

    async with rig(MemoryLedger(), answer=answer) as stage:
        await asyncio.gather(*(stage.start(f"s-{n}") for n in range(100)))
        impatient = [asyncio.create_task(stage.engine.wait(SagaId(f"s-{n}"), timeout_s=60)) for n in range(100)]
        for task in impatient[::2]:
            task.cancel()
        await asyncio.gather(*impatient, return_exceptions=True)
        for number in range(100):
            await stage.end(f"s-{number}")
        impatient.clear()
        await eventually(lambda: not ours(), what="tasks have ended")
        gc.collect()
        assert not [each for each in gc.get_objects() if type(each) is Driver]


@pytest.mark.parametrize(("size", "asked"), [(10, 0), (100_000, 1)])
async def test_ends_are_remembered_within_a_bound(size: int, asked: int) -> None:
    """The last ends are told without the ledger, but large ones don't stay in memory."""
    loads = 0

    def count(name: str) -> bool:
        nonlocal loads
        loads += name == "load"
        return False

    note = ScenarioInput(note="x" * size).SerializeToString()
    async with rig(LyingLedger(Plan(before=count))) as stage:
        await stage.start("s", payload=note)
        await stage.end("s")
        loads = 0
        await stage.end("s")
        assert loads == asked
