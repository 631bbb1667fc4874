"""A saga is watched while its coordinator is killed, or stopped, and started again on the same port."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from amends import SagaClient
from amends.v1 import saga_pb2
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.sagas import scene, steps
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.scenarios.sagas import Scene

pytestmark = [pytest.mark.scenario, pytest.mark.crash]

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


async def _killed(stage: Scene) -> None:
    await stage.coordinator.kill()


async def _stopped(stage: Scene) -> None:
    assert await stage.coordinator.stop() == 0


@pytest.mark.parametrize("end", [_killed, _stopped], ids=["kill -9", "SIGTERM"])
async def test_nothing_is_missed_and_nothing_is_told_twice(
    tmp_path: Path, end: Callable[[Scene], Awaitable[None]]
) -> None:
    """S11: what a watcher was told survives the coordinator; it goes on with the next one until the saga has ended."""
    async with scene(tmp_path) as stage, SagaClient(stage.coordinator.address, unavailable_timeout=PATIENCE) as client:
        stage.script(b=["hold", "ok"])
        saga = steps("a", "b", "c", attempt_timeout=timedelta(seconds=30))
        await client.start(saga, ScenarioInput(), saga_id="w")
        told = Told(client, "w")
        await eventually(lambda: len(stage.journal.effects()) == 2, what="b takes effect", bound_s=30)
        await eventually(lambda: bool(told.sagas) and len(told.sagas[-1].intents) == 2, what="b is told")
        before = len(told.sagas)
        await end(stage)
        await stage.coordinator.start()
        sagas = await told.all()
        assert len(sagas) > before
        counts = [each.write_count for each in sagas]
        assert counts == sorted(set(counts))
        assert [each.state for each in sagas[:-1]] == [saga_pb2.Saga.STATE_RUNNING] * (len(sagas) - 1)
        assert sagas[-1].state == saga_pb2.Saga.STATE_COMMITTED
        assert sagas[-1] == await client.get("w")
