"""F03: the network holds an action back, the coordinator gives up and compensates, and then the action arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest

from amends.v1 import saga_pb2
from tests.scenarios.barred import BARRED, barred
from tests.timelines.network import Fate
from tests.timelines.sagas import ATTEMPT, GUARDED, SHORT, SILENT, Timeline, timeline

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.barrier.stage import Rig

pytestmark = [pytest.mark.scenario, pytest.mark.parametrize("rig", BARRED, indirect=True)]

COMPENSATED = saga_pb2.Saga.STATE_COMPENSATED
REFUSED = grpc.StatusCode.FAILED_PRECONDITION


def held_back(*, pivot: bool = False, findable: bool = False) -> Timeline:
    """Two steps, of which the second hears nothing for longer than it waits. Its undo needs no `by_key`: the barrier
    finds its work.
    """
    saga = timeline("f03")
    first = saga.step("a", GUARDED.do(name="a"), timeout=ATTEMPT)
    first.compensated_by(GUARDED.undo(effect_id=first.response.effect_id))
    if pivot:
        second = saga.pivot("b", GUARDED.do(name="b"), timeout=SILENT, retry=SHORT)
    else:
        second = saga.step("b", GUARDED.do(name="b"), timeout=SILENT, retry=SHORT)
        second.compensated_by(GUARDED.undo(effect_id=second.response.effect_id))
    if findable:
        second.looked_up_by(GUARDED.find(name="b"), timeout=ATTEMPT)
    return saga


async def test_f03_what_was_held_back_is_refused(rig: Rig, tmp_path: Path) -> None:
    """S4: its compensation found nothing and left a mark, which refuses every late attempt: the body never runs."""
    async with barred(rig, tmp_path) as scene:
        scene.network.does("b/action", Fate.HELD)
        saga = await scene.rests(held_back())
        assert (saga.state, saga.unproven, saga.attention_required) == (COMPENSATED, False, False)
        assert set(await scene.network.deliver("b/action")) == {REFUSED}
        assert scene.ran == ["a/action", "a/compensation"]
        assert rig.effects() == []


@pytest.mark.parametrize("pivot", [False, True], ids=["compensatable", "pivot"])
async def test_f03_a_lookup_shuts_the_door_and_ends_the_doubt(rig: Rig, tmp_path: Path, *, pivot: bool) -> None:
    """S4, S6: its sealed NOT_FOUND settles the step at once: nothing is undone for it, and a pivot needs no person."""
    async with barred(rig, tmp_path) as scene:
        scene.network.does("b/action", Fate.HELD)
        saga = await scene.rests(held_back(pivot=pivot, findable=True))
        assert (saga.state, saga.unproven, saga.attention_required) == (COMPENSATED, False, False)
        assert [row.direction for row in saga.intents if row.step == "b"] == [
            saga_pb2.DIRECTION_ACTION,
            saga_pb2.DIRECTION_LOOKUP,
        ]
        assert set(await scene.network.deliver("b/action")) == {REFUSED}
        assert scene.ran == ["a/action", "a/compensation"]
        assert rig.effects() == []
