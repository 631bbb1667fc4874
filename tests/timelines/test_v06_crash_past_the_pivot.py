"""V6: the coordinator is killed past the pivot; the next one goes forward only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from amends.v1 import saga_pb2
from tests.timelines.network import Fate
from tests.timelines.sagas import ATTEMPT, GUARDED, LONG, Timeline, timeline, undoable
from tests.timelines.stage import killable
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.timeline, pytest.mark.crash]

WAYS = {
    "pivot-done": ("p", Fate.UNHEARD),
    "pivot-held": ("p", Fate.HELD),
    "behind-done": ("r", Fate.UNHEARD),
    "behind-held": ("r", Fate.HELD),
}
"""Which call is in flight when the coordinator is killed, and whether it was carried out."""


def definition(way: str) -> Timeline:
    """A step, the pivot, and a retriable step; all of one name for each way."""
    saga = timeline(f"v06-{way}")
    undoable(saga, f"a_{way.replace('-', '_')}", GUARDED)
    for kind, add in (("p", saga.pivot), ("r", saga.retriable)):
        name = f"{kind}_{way.replace('-', '_')}"
        add(name, GUARDED.do(name=name), timeout=ATTEMPT, retry=LONG)
    return saga


async def test_v06_forward_only(ledger_url: str, tmp_path: Path) -> None:
    """S2, S6: whether the call in flight was carried out or never came, it is made again with its key; every effect
    happens once, and nothing is compensated.
    """
    async with killable(ledger_url, tmp_path) as here:
        stage = here.stage
        waited_for: list[str] = []
        for way, (step, fate) in WAYS.items():
            name = f"{step}_{way.replace('-', '_')}"
            stage.network.does(f"{name}/action", fate, Fate.PASS)
            waited_for.append(name)
            await stage.start(definition(way), way)
        await eventually(lambda: all(stage.journal.begun(name) for name in waited_for), what="all are in flight")
        await eventually(lambda: len(stage.journal.effects()) == 8, what="what is carried out is carried out")
        await here.process.kill()
        await here.process.start()
        for way in WAYS:
            saga = await stage.rests(way)
            assert saga.state == saga_pb2.Saga.STATE_COMMITTED, way
        assert not stage.journal.effects("compensation")
        assert {len(stage.journal.begun(name)) for name in waited_for} == {2}
