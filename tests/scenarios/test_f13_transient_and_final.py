"""F13: what is repeated, and what isn't."""

from __future__ import annotations

from pathlib import Path

import pytest

from amends import Committed, Compensated, SagaClient
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.oracle import judge
from tests.scenarios.sagas import scene, steps

pytestmark = pytest.mark.scenario


@pytest.mark.parametrize("behaviour", ["unavailable", "raise", "try-later"])
async def test_f13_a_c_transient_failures_are_repeated_with_one_key(tmp_path: Path, behaviour: str) -> None:
    """S2, S12: three calls, one key, COMMITTED; an exception's text never leaves the participant."""
    async with scene(tmp_path) as stage, SagaClient(stage.coordinator.address) as client:
        stage.script(b=[behaviour, behaviour, "ok"])
        handle = await client.start(steps("a", "b"), ScenarioInput(), saga_id="f13")
        assert isinstance(await handle.wait(), Committed)
        saga = await client.get("f13")
        judge(saga, stage.journal)
        calls = stage.journal.begun("b")
        assert [call.attempt for call in calls] == [1, 2, 3]
        assert len({call.key for call in calls}) == 1
        assert "secret" not in str(saga)


async def test_f13_b_a_refusal_is_final(tmp_path: Path) -> None:
    """S4: one call, compensation at once."""
    async with scene(tmp_path) as stage, SagaClient(stage.coordinator.address) as client:
        stage.script(b=["reject"])
        handle = await client.start(steps("a", "b"), ScenarioInput(), saga_id="f13")
        assert isinstance(await handle.wait(), Compensated)
        judge(await client.get("f13"), stage.journal)
        assert len(stage.journal.begun("b")) == 1
        assert [entry.step for entry in stage.journal.effects("compensation")] == ["a"]
