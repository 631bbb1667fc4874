"""A run with whatever could make two runs differ (`test_same_run`)."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import aiosqlite

from amends import TryLater, current_step
from amends.testing import NoFault, Rehearsal
from scenario.v1.scenario_pb2 import DoRequest, DoResponse, ScenarioInput
from tests.unit.testing.stage import Steps, side_by_side

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amends.testing import Answer, CallSite
    from tests.unit.testing.stage import Context

SAGA = side_by_side("a", "b", "c", "d")


class Busy(Steps):
    """Works in threads, each of which may be the first to end."""

    async def Do(self, request: DoRequest, context: Context) -> DoResponse:
        """An action that works the first time for nothing."""
        await asyncio.gather(*(asyncio.to_thread(time.sleep, 0.001) for _ in range(3)))
        async with aiosqlite.connect(":memory:") as database:
            await database.execute("create table t (x)")
        if current_step().attempt < 3:
            raise TryLater("not now")
        return await super().Do(request, context)


class Storm(NoFault):
    """Delivers every third attempt twice, and kills the coordinator at the second attempt of one call."""

    rehearsal: Rehearsal

    async def call(self, site: CallSite, send: Callable[[], Awaitable[Answer]]) -> Answer:
        """See `Fault`."""
        if (site.saga_id, site.step, site.attempt) == ("s-2", "b", 2):
            self.rehearsal.kill()
        if site.attempt == 3:
            self.rehearsal.later(send())
        return await send()


async def busy() -> str:
    """What happened."""
    storm = Storm()
    async with Rehearsal({"steps": [Busy(refuses={"d"})]}, fault=storm) as rehearsal:
        storm.rehearsal = rehearsal
        for number in range(3):
            await rehearsal.client.start(SAGA, ScenarioInput(amount=number), saga_id=f"s-{number}")
        ends = [await rehearsal.settled(f"s-{number}") for number in range(3)]
        made_up = await rehearsal.client.run(SAGA, ScenarioInput())
        rehearsal.note(f"{made_up} {[end.SerializeToString(deterministic=True) for end in ends]}")
        return rehearsal.timeline()
