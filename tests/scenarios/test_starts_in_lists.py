"""F14 with starts in lists: the coordinator is killed while a stream carries many starts that wait for their ends."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from amends import Committed
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.oracle import judge
from tests.scenarios.sagas import scene, steps
from tests.unit.sdk_initiator.listed import ListingClient
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.scenario, pytest.mark.crash]

COUNT = 12
BOUND = timedelta(seconds=60)


async def test_f14_a_stream_of_starts_dies_with_its_coordinator(tmp_path: Path) -> None:
    """S9, S11, L1: each start that was under way is sent again with its id, to whoever answers then; every saga runs
    once, and its end reaches the one who waits for it.
    """
    async with scene(tmp_path) as stage:
        saga = steps("a", "b")
        client = await ListingClient(stage.coordinator.address, unavailable_timeout=BOUND).__aenter__()
        running = [
            asyncio.create_task(client.run(saga, ScenarioInput(), saga_id=f"f14-{number}", timeout=BOUND))
            for number in range(COUNT)
        ]
        await eventually(lambda: len(stage.journal.effects()) > COUNT // 2, what="some are at work", bound_s=30)
        await stage.coordinator.kill()
        await stage.coordinator.start()
        assert all(isinstance(end, Committed) for end in await asyncio.gather(*running))
        for number in range(COUNT):
            judge(await client.get(f"f14-{number}"), stage.journal)
        await client.close()
