"""F07: five steps, the fifth refused; each compensation takes 0 to 500 ms at random."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from amends import Compensated, SagaClient
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.oracle import judge
from tests.scenarios.sagas import scene, steps

pytestmark = pytest.mark.scenario


@pytest.mark.parametrize("seed", range(3))
async def test_f07_each_begins_after_the_one_before_it_ended(tmp_path: Path, seed: int) -> None:
    """S5: newest first, one after the other."""
    dice = random.Random(seed)
    async with scene(tmp_path) as stage, SagaClient(stage.coordinator.address) as client:
        slow = {f"undo_s{number}": [f"delay:{dice.randint(0, 500)}"] for number in range(1, 5)}
        stage.script(s5=["reject"], **slow)
        handle = await client.start(steps("s1", "s2", "s3", "s4", "s5"), ScenarioInput(), saga_id="f07")
        outcome = await handle.wait()
        assert isinstance(outcome, Compensated)
        assert outcome.reason == "SCRIPTED"
        judge(await client.get("f07"), stage.journal)
        undone = [e for e in stage.journal.read() if e.direction == "compensation" and e.event != "effect"]
        expected = [(step, event) for step in ("s4", "s3", "s2", "s1") for event in ("begin", "end")]
        assert [(entry.step, entry.event) for entry in undone] == expected
