"""V7: the pivot succeeds and asks for the saga to be rolled back: too late."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from amends.v1 import saga_pb2
from tests.timelines.network import Fate
from tests.timelines.participant import OK, Turn
from tests.timelines.sagas import ATTEMPT, GUARDED, LONG, SILENT, Timeline, timeline, undoable
from tests.timelines.stage import staged

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeline

ASKS = Turn(abort="the stock is wrong after all")


def definition(timeout: timedelta = ATTEMPT) -> Timeline:
    """A step, the pivot, and a retriable step."""
    saga = timeline("v07")
    undoable(saga, "a", GUARDED)
    saga.pivot("p", GUARDED.do(name="p"), timeout=timeout, retry=LONG)
    saga.retriable("r", GUARDED.do(name="r"), timeout=timeout, retry=LONG)
    return saga


@pytest.mark.parametrize("step", ["p", "r"])
@pytest.mark.parametrize("fates", [(Fate.PASS,), (Fate.UNHEARD, Fate.PASS)], ids=["heard", "repeated"])
async def test_v07_it_only_tells_a_person(ledger_url: str, tmp_path: Path, step: str, fates: tuple[Fate, ...]) -> None:
    """S6: a dead letter ABORT_TOO_LATE with the reason, also where the answer comes with a repeated call; COMMITTED,
    and nothing is undone.
    """
    async with staged(ledger_url, tmp_path) as stage:
        stage.participant.does(f"{step}/action", ASKS)
        stage.network.does(f"{step}/action", *fates)
        await stage.start(definition(ATTEMPT if fates == (Fate.PASS,) else SILENT))
        saga = await stage.once(lambda saga: saga.state != saga_pb2.Saga.STATE_RUNNING)
        stage.judge(saga)
        assert saga.state == saga_pb2.Saga.STATE_COMMITTED
        assert saga.attention_required
        assert [(each.step, each.reason, each.last_error) for each in saga.dead_letters] == [
            (step, saga_pb2.DeadLetter.REASON_ABORT_TOO_LATE, ASKS.abort)
        ]


async def test_v07_before_the_pivot_it_is_obeyed(ledger_url: str, tmp_path: Path) -> None:
    """S4: the step that asks for it has succeeded, and is compensated too."""
    async with staged(ledger_url, tmp_path) as stage:
        stage.participant.does("a/action", ASKS, OK)
        await stage.start(definition())
        saga = await stage.rests()
        assert (saga.state, saga.failure.reason) == (saga_pb2.Saga.STATE_COMPENSATED, "ABORTED_BY_STEP")
        assert saga.failure.message == ASKS.abort
        assert (stage.participant.ever("a"), stage.participant.effects("a")) == (1, 0)
        assert not stage.journal.begun("p")
