"""V21: kill -9, and a restart after twice every budget."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from amends.v1 import saga_pb2
from tests.timelines.network import Fate
from tests.timelines.sagas import ATTEMPT, GUARDED, SHORT, Timeline, timeline, undoable
from tests.timelines.stage import killable
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.timeline, pytest.mark.crash]

TWICE_EVERY_BUDGET_S = 2 * (SHORT.total_timeout.total_seconds() if SHORT.total_timeout else 0.0)
FATES = (Fate.UNHEARD, Fate.HELD)


def definition(name: str) -> Timeline:
    """Two steps whose budgets are over in a moment."""
    saga = timeline(f"v21-{name}")
    undoable(saga, f"a{name}", GUARDED, retry=SHORT)
    undoable(saga, f"b{name}", GUARDED, retry=SHORT, findable=True)
    saga.pivot(f"p{name}", GUARDED.do(name="p"), timeout=ATTEMPT, retry=SHORT)
    return saga


async def test_v21_no_healthy_saga_is_rolled_back(ledger_url: str, tmp_path: Path) -> None:
    """S12: time in which nobody drove a saga costs nothing: whichever call was in flight, carried out or not, it is
    made again after the restart, and every saga commits.
    """
    async with killable(ledger_url, tmp_path) as here:
        stage = here.stage
        names = [f"{step}{number}" for step in "abp" for number in range(len(FATES))]
        for name in names:
            stage.network.does(f"{name[0]}{name}/action", FATES[int(name[1])], Fate.PASS)
            await stage.start(definition(name), name)
        await eventually(lambda: all(stage.journal.begun(f"{n[0]}{n}") for n in names), what="all are in flight")
        await here.process.kill()
        killed_s = time.monotonic()
        await eventually(lambda: time.monotonic() > killed_s + TWICE_EVERY_BUDGET_S, what="budgets are over")
        await here.process.start()
        for name in names:
            assert (await stage.rests(name)).state == saga_pb2.Saga.STATE_COMMITTED, name
            assert len(stage.journal.begun(f"{name[0]}{name}")) == 2
        assert not stage.journal.effects("compensation")
