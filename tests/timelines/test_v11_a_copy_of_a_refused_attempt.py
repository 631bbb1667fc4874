"""V11: the saga rolled back because a step was refused, and has ended; then a copy of the refused attempt arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from amends.v1 import saga_pb2
from tests.timelines.books import Code
from tests.timelines.network import Fate
from tests.timelines.participant import OK, REFUSE
from tests.timelines.sagas import ATTEMPT, GUARDED, LONG, Timeline, timeline, undoable
from tests.timelines.stage import staged

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeline


def definition(*, pivot: bool) -> Timeline:
    """A step, and one that is refused."""
    saga = timeline("v11")
    undoable(saga, "a", GUARDED)
    if pivot:
        saga.pivot("b", GUARDED.do(name="b"), timeout=ATTEMPT, retry=LONG)
    else:
        undoable(saga, "b", GUARDED)
    return saga


@pytest.mark.parametrize("pivot", [False, True], ids=["compensatable", "pivot"])
async def test_v11_the_copy_is_refused_too(ledger_url: str, tmp_path: Path, *, pivot: bool) -> None:
    """S4: the barrier keeps refusals and seals them, so that the copy is refused although it could be served by now."""
    async with staged(ledger_url, tmp_path) as stage:
        stage.participant.does("b/action", REFUSE, OK)
        stage.network.does("b/action", Fate.DOUBLED)
        await stage.start(definition(pivot=pivot))
        saga = await stage.rests()
        assert (saga.state, saga.unproven) == (saga_pb2.Saga.STATE_COMPENSATED, False)
        outcomes = [each.outcome for intent in saga.intents if intent.step == "b" for each in intent.attempts]
        assert outcomes == [saga_pb2.OUTCOME_REJECTED_SEALED]
        assert await stage.network.deliver("b/action") == [Code.FAILED_PRECONDITION]
        assert (stage.participant.ever("b"), stage.participant.effects("a")) == (0, 0)
        stage.judge(await stage.client.get("s"))
