"""V17: the undo, or the lookup, runs at another participant and says NOT_FOUND while the action is still on its way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from amends import Guarantee
from amends.v1 import saga_pb2
from tests.timelines.books import Code
from tests.timelines.network import Fate
from tests.timelines.participant import MISSING
from tests.timelines.sagas import ATTEMPT, GUARDED, KEYED, LONG, SHORT, Timeline, timeline, undoable
from tests.timelines.stage import staged

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeline


def definition() -> Timeline:
    """A step, and one that is done by one participant and undone by another; both claim to keep the barrier's rules."""
    saga = timeline("v17")
    undoable(saga, "a", GUARDED)
    step = saga.step("b", GUARDED.do(name="b"), timeout=ATTEMPT, retry=SHORT, guarantee=Guarantee.BARRIER)
    step.compensated_by(KEYED.undo(name="b"), by_key=True, timeout=ATTEMPT, retry=LONG)
    return saga


async def test_v17_it_is_never_proven_compensated(ledger_url: str, tmp_path: Path) -> None:
    """S4: no barrier reaches from one participant to another: the late action stands, and the saga says that its end is
    unproven. The other participant is told that it didn't see the action.
    """
    async with staged(ledger_url, tmp_path) as stage:
        stage.network.does("b/action", Fate.LATE)
        stage.participant.does("b/compensation", MISSING)
        await stage.start(definition())
        saga = await stage.rests()
        assert (saga.state, saga.unproven) == (saga_pb2.Saga.STATE_COMPENSATED, True)
        (undo,) = (
            each for each in saga.intents if (each.step, each.direction) == ("b", saga_pb2.DIRECTION_COMPENSATION)
        )
        assert undo.state == saga_pb2.Intent.STATE_NOTHING_TO_UNDO
        assert stage.network.targets["b/compensation"] == {"other"}
        assert stage.network.targets["a/compensation"] == {"same"}
        assert Code.OK in await stage.network.deliver("b/action")
        assert stage.participant.effects("b") == 1
        stage.judge(await stage.client.get("s"))


def looked_up_elsewhere() -> Timeline:
    """A step whose lookup is another participant's, which keeps the barrier's rules and seals what it doesn't find."""
    saga = timeline("v17-lookup")
    step = saga.step("b", KEYED.do(name="b"), timeout=ATTEMPT, retry=SHORT)
    step.compensated_by(KEYED.undo(name="b"), by_key=True, timeout=ATTEMPT, retry=LONG)
    step.looked_up_by(GUARDED.find(name="b"), timeout=ATTEMPT, retry=SHORT)
    return saga


async def test_v17_the_seal_of_another_participant_proves_nothing(ledger_url: str, tmp_path: Path) -> None:
    """S4: only the participant that was called with the action can promise never to run it, so what another one doesn't
    find may have happened: it is undone, and the saga says that its end is unproven.
    """
    async with staged(ledger_url, tmp_path) as stage:
        stage.network.does("b/action", Fate.LATE)
        await stage.start(looked_up_elsewhere())
        saga = await stage.rests()
        assert (saga.state, saga.unproven) == (saga_pb2.Saga.STATE_COMPENSATED, True)
        assert {(row.direction, row.participant) for row in saga.intents} == {
            (saga_pb2.DIRECTION_ACTION, "key"),
            (saga_pb2.DIRECTION_LOOKUP, "barrier"),
            (saga_pb2.DIRECTION_COMPENSATION, "key"),
        }
        assert Code.OK in await stage.network.deliver("b/action")
        assert stage.participant.effects("b") == 1
        stage.judge(await stage.client.get("s"))
