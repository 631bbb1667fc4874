"""A saga is watched while its coordinator is killed, or told to stop, and started again on the same port."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from amends import SagaClient
from amends.v1 import saga_pb2
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.inside import inside
from tests.scenarios.raw import raw_steps
from tests.scenarios.sagas import scene, steps
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.scenario

BOUND_S = 60
PATIENCE = timedelta(seconds=BOUND_S)


class Told:
    """What a client is told of a saga that it watches."""

    def __init__(self, client: SagaClient, saga_id: str) -> None:
        self.sagas: list[saga_pb2.Saga] = []
        self._watching = asyncio.create_task(self._watch(client, saga_id))

    async def _watch(self, client: SagaClient, saga_id: str) -> None:
        async for saga in client.watch(saga_id):
            self.sagas.append(saga)

    async def all(self) -> list[saga_pb2.Saga]:
        """Everything, once the stream has ended by itself."""
        await asyncio.wait_for(self._watching, BOUND_S)
        return self.sagas


def check(sagas: list[saga_pb2.Saga]) -> None:
    """Each change once, in order, up to the end."""
    counts = [each.write_count for each in sagas]
    assert counts == sorted(set(counts))
    assert {each.state for each in sagas[:-1]} == {saga_pb2.Saga.STATE_RUNNING}
    assert sagas[-1].state == saga_pb2.Saga.STATE_COMMITTED


@pytest.mark.crash
async def test_nothing_is_missed_and_nothing_is_told_twice(tmp_path: Path) -> None:
    """S11: what a watcher was told survives a kill -9 of the coordinator; it goes on with the next one to the end."""
    async with scene(tmp_path) as stage, SagaClient(stage.coordinator.address, unavailable_timeout=PATIENCE) as client:
        stage.script(b=["hold", "ok"])
        saga = steps("a", "b", "c", attempt_timeout=timedelta(seconds=30))
        await client.start(saga, ScenarioInput(), saga_id="w")
        told = Told(client, "w")
        await eventually(lambda: len(stage.journal.effects()) == 2, what="b takes effect", bound_s=30)
        await eventually(lambda: bool(told.sagas) and len(told.sagas[-1].intents) == 2, what="b is told")
        before = len(told.sagas)
        await stage.coordinator.kill()
        await stage.coordinator.start()
        sagas = await told.all()
        assert len(sagas) > before
        check(sagas)
        assert sagas[-1] == await client.get("w")


async def test_a_coordinator_that_stops_sends_watchers_to_the_next_one(tmp_path: Path) -> None:
    """A stop waits for no watcher and says that it stops; they come back to the one that follows."""
    async with AsyncExitStack() as stack:
        async with inside(tmp_path) as first:
            client = await stack.enter_async_context(SagaClient(first.address, unavailable_timeout=PATIENCE))
            await client.start(steps("a", "b"), ScenarioInput(), saga_id="w")
            told = Told(client, "w")
            await eventually(lambda: bool(told.sagas), what="the saga as it is")
        async with raw_steps() as participant, inside(tmp_path, port=int(first.address.rpartition(":")[2])) as second:
            await second.announce("raw", participant.address)
            check(await told.all())
