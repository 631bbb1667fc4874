"""F12: a saga with a short timeout whose third step hangs, and whose compensations are slow and take three tries."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from amends.v1 import saga_pb2
from tests.timelines.databases import sqlite_ledger
from tests.timelines.network import Fate
from tests.timelines.sagas import GUARDED, LONG, Timeline, timeline
from tests.timelines.stage import staged

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.scenario

TIMEOUT_S, UNDO_TIMEOUT_S = 2.0, 0.5
SLACK_S = 5.0


def definition() -> Timeline:
    """Three steps that could take a minute each, in a saga that may take two seconds."""
    saga = timeline("f12", timeout=timedelta(seconds=TIMEOUT_S))
    for name in ("a", "b", "c"):
        step = saga.step(name, GUARDED.do(name=name), timeout=timedelta(minutes=1), retry=LONG)
        undo_timeout = timedelta(seconds=UNDO_TIMEOUT_S)
        step.compensated_by(GUARDED.undo(name=name), by_key=True, timeout=undo_timeout, retry=LONG)
    return saga


async def test_f12_forward_work_stops_and_every_undo_has_its_own_time(tmp_path: Path) -> None:
    """S4, L1: the hanging call ends with the saga's deadline and isn't repeated; each compensation, and each try of it,
    has its own full deadline, long after the saga's is over.
    """
    async with staged(sqlite_ledger(tmp_path), tmp_path) as stage:
        stage.network.does("c/action", Fate.HELD)
        for name in ("a", "b", "c"):
            stage.network.does(f"{name}/compensation", Fate.HELD, Fate.HELD, Fate.PASS)
        await stage.start(definition())
        saga = await stage.rests()
        assert (saga.state, saga.failure.reason, saga.unproven) == (
            saga_pb2.Saga.STATE_COMPENSATED,
            "TIMED_OUT",
            False,
        )
        (hung,) = stage.journal.begun("c")
        assert hung.deadline_left_s is not None
        assert hung.deadline_left_s <= TIMEOUT_S
        (ended,) = (e for e in stage.journal.read() if (e.event, e.step, e.direction) == ("end", "c", "action"))
        assert ended.time_s - hung.time_s < TIMEOUT_S + SLACK_S
        for name in ("a", "b", "c"):
            tries = stage.journal.begun(name, "compensation")
            assert [each.attempt for each in tries] == [1, 2, 3]
            assert all((each.deadline_left_s or 0) > UNDO_TIMEOUT_S / 2 for each in tries)
        assert [stage.participant.effects(name) for name in ("a", "b", "c")] == [0, 0, 0]
