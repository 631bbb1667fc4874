"""Steps side by side, through the builder, a real coordinator and a real participant; and what follows a rollback."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amends import Committed, Compensated, Saga, SagaClient, Step
from amends.v1 import saga_pb2
from scenario.v1.scenario_pb2 import DoRequest, DoResponse, ScenarioInput, ScenarioOutput
from tests.scenarios.journal import Journal
from tests.scenarios.sagas import QUICK, Do, ScenarioSaga, Undo, scene

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.scenario

TIMEOUT = timedelta(seconds=5)


def diamond() -> ScenarioSaga:
    """first, then left beside right, then the pivot; when it is rolled back, two words one after another."""
    saga: ScenarioSaga = Saga("diamond", input=ScenarioInput, output=ScenarioOutput)

    def undoable(name: str, after: Sequence[Step[DoRequest, DoResponse]] | None) -> Step[DoRequest, DoResponse]:
        step = saga.step(name, Do(name=name), after=after, timeout=TIMEOUT, retry=QUICK)
        return step.compensated_by(Undo(effect_id=step.response.effect_id, name=name), retry=QUICK)

    first = undoable("first", None)
    left, right = undoable("left", (first,)), undoable("right", (first,))
    pivot = saga.pivot("pivot", Do(name="pivot"), timeout=TIMEOUT, retry=QUICK)
    assert pivot.after == (left, right)
    told = saga.on_compensated("told", Do(name=saga.failure.reason), retry=QUICK)
    saga.on_compensated("also", Do(name=told.response.name), retry=QUICK)
    saga.output(ScenarioOutput)(effect_id=pivot.response.effect_id)
    return saga


def span(journal: Journal, step: str, direction: str = "action") -> tuple[float, float]:
    """When a call of a step began and ended."""
    calls = [each for each in journal.read() if (each.step, each.direction) == (step, direction)]
    begin, end = ([each.time_s for each in calls if each.event == event] for event in ("begin", "end"))
    return begin[0], end[-1]


def said_it_all(saga: saga_pb2.Saga) -> bool:
    """Whether both words have been said."""
    done = {each.step for each in saga.intents if each.state == saga_pb2.Intent.STATE_SUCCEEDED}
    return {"told", "also"} <= done


async def test_steps_that_do_not_wait_for_each_other_overlap(tmp_path: Path) -> None:
    """Promise: a step begins when all that it waits for has succeeded, and not only when the one before it has."""
    async with scene(tmp_path) as stage, SagaClient(stage.coordinator.address) as client:
        stage.script(left=["delay:600"], right=["delay:600"])
        handle = await client.start(diamond(), ScenarioInput(), saga_id="diamond")
        assert isinstance(await handle.wait(), Committed)
        left, right = span(stage.journal, "left"), span(stage.journal, "right")
        assert max(left[0], right[0]) < min(left[1], right[1])
        assert span(stage.journal, "first")[1] <= min(left[0], right[0])
        assert span(stage.journal, "pivot")[0] >= max(left[1], right[1])


async def test_they_are_undone_before_what_they_waited_for_and_then_it_is_told(tmp_path: Path) -> None:
    """S5: a step is undone after all that waited for it; what follows the rollback knows why, and comes last."""
    async with scene(tmp_path) as stage, SagaClient(stage.coordinator.address) as client:
        stage.script(pivot=["reject"], undo_left=["delay:300"], undo_right=["delay:300"])
        handle = await client.start(diamond(), ScenarioInput(), saga_id="diamond")
        assert isinstance(await handle.wait(), Compensated)
        undone = [span(stage.journal, step, "compensation") for step in ("left", "right", "first")]
        assert undone[2][0] >= max(undone[0][1], undone[1][1])
        ended = await stage.saga_once(client, "diamond", said_it_all)
        entries = [each for each in stage.journal.read() if each.step in ("told", "also") and each.event == "effect"]
        assert [(each.step, each.name) for each in entries] == [("told", "SCRIPTED"), ("also", "SCRIPTED")]
        assert entries[0].time_s >= undone[2][1]
        assert ended.state == saga_pb2.Saga.STATE_COMPENSATED
