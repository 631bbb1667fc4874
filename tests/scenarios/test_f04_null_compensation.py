"""F04: a compensation whose action was never seen comes twice, and then the action comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest

from amends.v1 import saga_pb2
from tests.scenarios.barred import BARRED, barred
from tests.timelines.network import Fate
from tests.timelines.sagas import ATTEMPT, GUARDED, KEYED, SHORT, Promise, Timeline, timeline

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.barrier.stage import Rig

pytestmark = [pytest.mark.scenario, pytest.mark.parametrize("rig", BARRED, indirect=True)]

COMPENSATED = saga_pb2.Saga.STATE_COMPENSATED
OK, REFUSED = grpc.StatusCode.OK, grpc.StatusCode.FAILED_PRECONDITION


def undone_by(promise: Promise) -> Timeline:
    """A step that is undone by its own participant, or by another one."""
    saga = timeline("f04")
    step = saga.step("b", GUARDED.do(name="b"), timeout=ATTEMPT, retry=SHORT)
    step.compensated_by(promise.undo(name="b"), by_key=promise is KEYED)
    return saga


async def test_f04_at_its_own_participant_it_is_null(rig: Rig, tmp_path: Path) -> None:
    """S4: both copies succeed at once without their body, and the action is refused for good: the end is proven."""
    async with barred(rig, tmp_path) as scene:
        scene.network.does("b/action", Fate.LATE)
        scene.network.does("b/compensation", Fate.DOUBLED)
        saga = await scene.rests(undone_by(GUARDED))
        assert (saga.state, saga.unproven) == (COMPENSATED, False)
        assert await scene.network.deliver("b/compensation") == [OK]
        assert set(await scene.network.deliver("b/action")) == {REFUSED}
        assert scene.network.targets["b/compensation"] == {"same"}
        (undo,) = (row for row in saga.intents if row.direction == saga_pb2.DIRECTION_COMPENSATION)
        assert (undo.state, undo.attempt_count) == (saga_pb2.Intent.STATE_SUCCEEDED, 1)
        assert scene.ran == []
        assert rig.effects() == []


async def test_f04_at_another_participant_its_body_runs_once(rig: Rig, tmp_path: Path) -> None:
    """S4: who was not called with the action can't tell that it never ran, so nothing is null there: the body decides,
    once for both copies, and the saga says that its end is unproven.
    """
    async with barred(rig, tmp_path) as scene:
        scene.network.does("b/action", Fate.LATE)
        scene.network.does("b/compensation", Fate.DOUBLED)
        saga = await scene.rests(undone_by(KEYED))
        assert (saga.state, saga.unproven) == (COMPENSATED, True)
        assert await scene.network.deliver("b/compensation") == [OK]
        assert scene.network.targets["b/compensation"] == {"other"}
        assert scene.ran == ["b/compensation"]
