"""V1: the pivot's outcome is unknown and nobody can be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from amends.v1 import saga_pb2
from tests.timelines.network import Fate
from tests.timelines.sagas import (
    ATTEMPT,
    GUARDED,
    KEYED,
    SHORT,
    SILENT,
    UNPROMISED,
    Promise,
    Timeline,
    timeline,
    undoable,
)
from tests.timelines.stage import staged

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeline


def definition(promise: Promise, fate: Fate) -> Timeline:
    """A compensatable step, then a pivot without a lookup."""
    saga = timeline("v01")
    undoable(saga, "a", promise)
    saga.pivot("p", promise.do(name="p"), timeout=SILENT if fate is Fate.UNHEARD else ATTEMPT, retry=SHORT)
    return saga


@pytest.mark.parametrize("promise", [GUARDED, KEYED, UNPROMISED], ids=["barrier", "key", "none"])
@pytest.mark.parametrize("fate", [Fate.DROPPED, Fate.UNHEARD])
async def test_v01_it_is_parked_and_nothing_is_compensated(
    ledger_url: str, tmp_path: Path, promise: Promise, fate: Fate
) -> None:
    """S6: whether the pivot was carried out or never came, the saga stays RUNNING with a dead letter, and what came
    before it stands.
    """
    async with staged(ledger_url, tmp_path) as stage:
        stage.network.does("p/action", fate)
        await stage.start(definition(promise, fate))
        saga = await stage.rests()
        assert saga.state == saga_pb2.Saga.STATE_RUNNING
        assert saga.point_of_no_return_passed
        assert [(each.step, each.reason) for each in saga.dead_letters] == [
            ("p", saga_pb2.DeadLetter.REASON_OUTCOME_UNKNOWN)
        ]
        assert stage.participant.effects("a") == 1
        assert not stage.journal.begun("a", "compensation")
