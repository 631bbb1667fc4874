"""F20: garbage is collected every 10 ms under load, so that a task which only the loop knows would be lost.

Drivers made to raise are in tests/unit/engine/test_bad_days.py.
"""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest

from amends.v1 import saga_pb2
from tests.timelines.databases import sqlite_ledger
from tests.timelines.participant import FAIL, OK, REFUSE
from tests.timelines.sagas import ATTEMPT, GUARDED, LONG, Timeline, timeline, undoable
from tests.timelines.stage import staged
from tests.waiting import pause

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.scenario

MANY = 20


def definition(end: str) -> Timeline:
    """Two side by side, then one that succeeds or is refused."""
    saga = timeline(f"f20-{end}")
    sides = [undoable(saga, name, GUARDED, after=()) for name in ("a", "b")]
    undoable(saga, end, GUARDED, after=sides)
    saga.pivot("p", GUARDED.do(name="p"), timeout=ATTEMPT, retry=LONG)
    return saga


async def test_f20_no_saga_stops(tmp_path: Path) -> None:
    """L1, L2: those that go on and those that roll back all end, also those that are in back-off or waited for."""
    over = asyncio.Event()

    async def collect() -> None:
        while not over.is_set():
            gc.collect()
            await pause()

    async with staged(sqlite_ledger(tmp_path), tmp_path) as stage:
        stage.participant.does("a/action", FAIL, OK)
        stage.participant.does("no/action", REFUSE)
        collecting = asyncio.create_task(collect())
        ends = ["yes" if number % 2 else "no" for number in range(MANY)]
        handles = await asyncio.gather(*(stage.start(definition(end), f"s-{n}") for n, end in enumerate(ends)))
        await asyncio.gather(*(handle.wait() for handle in handles))
        over.set()
        await collecting
        for number, end in enumerate(ends):
            saga = await stage.rests(f"s-{number}")
            wanted = saga_pb2.Saga.STATE_COMMITTED if end == "yes" else saga_pb2.Saga.STATE_COMPENSATED
            assert saga.state == wanted
