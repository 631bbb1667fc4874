"""F02: a step applies its effect, then is silent past its deadline on every attempt until its budget is spent."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from amends import Retry
from amends.v1 import saga_pb2
from tests.timelines.databases import sqlite_ledger
from tests.timelines.network import Fate
from tests.timelines.sagas import GUARDED, KEYED, SILENT, Promise, Timeline, timeline, undoable
from tests.timelines.stage import staged

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.scenario

SEVERAL = Retry(
    initial_delay=timedelta(milliseconds=10),
    maximum_delay=timedelta(milliseconds=50),
    total_timeout=8 * SILENT,
)
"""Long enough for a few attempts that nobody answers."""


def definition(promise: Promise) -> Timeline:
    """Three steps; the second one has a short deadline."""
    saga = timeline("f02")
    undoable(saga, "a", promise)
    undoable(saga, "b", promise, timeout=SILENT, retry=SEVERAL)
    undoable(saga, "c", promise)
    return saga


@pytest.mark.parametrize("promise", [GUARDED, KEYED], ids=["barrier", "key"])
async def test_f02_it_is_compensated_first_then_the_one_before(tmp_path: Path, promise: Promise) -> None:
    """S2, S4, S5: one effect however often it was tried, undone although it never answered; a step that was never
    attempted gets no compensation.
    """
    async with staged(sqlite_ledger(tmp_path), tmp_path) as stage:
        stage.network.does("b/action", Fate.UNHEARD)
        await stage.start(definition(promise))
        saga = await stage.rests()
        assert saga.state == saga_pb2.Saga.STATE_COMPENSATED
        assert saga.unproven is (promise is KEYED)
        attempts = stage.journal.begun("b")
        assert len(attempts) > 1
        assert {entry.key for entry in attempts} == {"s/b/action"}
        assert stage.participant.ever("b") == 1
        assert [entry.step for entry in stage.journal.effects("compensation")] == ["b", "a"]
        assert not [entry for entry in stage.journal.read() if entry.step == "c"]
