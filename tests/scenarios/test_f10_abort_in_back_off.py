"""F10: a step whose policy allows a back-off of 60 s is unavailable and waits; then the saga is aborted."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from amends import Retry
from amends.v1 import saga_pb2
from tests.scenarios.desk import intent_of
from tests.timelines.participant import FAIL
from tests.timelines.sagas import GUARDED, KEYED, Promise, Timeline, timeline, undoable
from tests.timelines.stage import staged

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.scenario

MINUTE = timedelta(seconds=60)
SOON_S = 5.0
"""Fivefold what it may take."""


def definition(promise: Promise) -> Timeline:
    """Two steps; the second waits for at least half a minute after an attempt."""
    saga = timeline("f10")
    undoable(saga, "a", promise)
    retry = Retry(initial_delay=MINUTE, maximum_delay=MINUTE, total_timeout=timedelta(hours=1))
    undoable(saga, "b", promise, retry=retry)
    return saga


@pytest.mark.parametrize("promise", [GUARDED, KEYED], ids=["barrier", "key"])
async def test_f10_it_rolls_back_at_once(ledger_url: str, tmp_path: Path, promise: Promise) -> None:
    """S4, S10, L1: the compensation starts within about a second although the saga has left memory, nothing is
    attempted afterwards, and the step counts as one that may have happened.
    """
    async with staged(ledger_url, tmp_path) as stage:
        stage.participant.does("b/action", FAIL)
        await stage.start(definition(promise))
        await stage.once(lambda saga: any(each.HasField("next_attempt_time") for each in saga.intents))
        aborted_s = time.time()
        assert (await stage.desk.abort()).abort_requested
        saga = await stage.rests()
        assert (saga.state, saga.unproven) == (saga_pb2.Saga.STATE_COMPENSATED, promise is KEYED)
        (undo,) = stage.journal.begun("b", "compensation")
        assert undo.time_s - aborted_s < SOON_S
        assert len(stage.journal.begun("b")) == 1
        assert intent_of(saga, "b").state == saga_pb2.Intent.STATE_UNKNOWN
        assert [entry.step for entry in stage.journal.effects("compensation")] == ["a"]
