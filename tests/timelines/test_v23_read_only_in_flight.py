"""V23: an abort while a read-only step is in flight."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from amends.v1 import saga_pb2
from tests.scenarios.desk import intent_of
from tests.timelines.books import Code
from tests.timelines.network import Fate
from tests.timelines.sagas import ATTEMPT, GUARDED, LONG, Timeline, timeline, undoable
from tests.timelines.stage import staged
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeline

GRACE_S = 20.0
SOON_S = 5.0
"""Fivefold what it may take; far less than the grace and the call's own deadline."""


def definition() -> Timeline:
    """A step, then one that only reads."""
    saga = timeline("v23")
    undoable(saga, "a", GUARDED)
    saga.read_only("q", GUARDED.do(name="q"), timeout=ATTEMPT, retry=LONG)
    return saga


@pytest.mark.parametrize("fates", [(Fate.HELD,), (Fate.DROPPED, Fate.HELD)], ids=["first", "after-an-unknown-one"])
async def test_v23_it_is_dropped_at_once(ledger_url: str, tmp_path: Path, fates: tuple[Fate, ...]) -> None:
    """S4, S5, S10: nothing waits for it: no grace, no lookup, no dead letter; what came before it is undone at once,
    and the end is proven. When it lands later nobody cares.
    """
    async with staged(ledger_url, tmp_path, abort_grace_s=GRACE_S) as stage:
        stage.network.does("q/action", *fates)
        await stage.start(definition())
        await eventually(lambda: len(stage.journal.begun("q")) == len(fates), what="q is in flight")
        aborted_s = time.monotonic()
        assert (await stage.desk.abort()).abort_requested
        saga = await stage.rests()
        assert time.monotonic() - aborted_s < SOON_S
        assert (saga.state, saga.unproven, len(saga.dead_letters)) == (saga_pb2.Saga.STATE_COMPENSATED, False, 0)
        assert intent_of(saga, "q").state == saga_pb2.Intent.STATE_DROPPED
        assert (stage.participant.ever("a"), stage.participant.effects("a")) == (1, 0)
        assert await stage.network.deliver("q/action") == [Code.OK]
        assert len(stage.journal.begun("q")) == len(fates)
