"""F05: StartSaga is sent again after the saga ended, also after a restart (retention comes later)."""

from __future__ import annotations

from pathlib import Path

import pytest

from amends import Committed, Compensated, SagaClient
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.sagas import scene, steps

pytestmark = pytest.mark.scenario


async def test_f05_the_same_saga_as_it_ended_and_nobody_is_called(tmp_path: Path) -> None:
    """S8, S9: one saga per id, for ever; ends never change."""
    async with scene(tmp_path) as stage:
        stage.script(no=["reject"])
        good, bad = steps("a", "b"), steps("a", "no")
        async with SagaClient(stage.coordinator.address) as client:
            committed = await (await client.start(good, ScenarioInput(amount=1), saga_id="good")).wait()
            compensated = await (await client.start(bad, ScenarioInput(amount=1), saga_id="bad")).wait()
        assert isinstance(committed, Committed)
        assert isinstance(compensated, Compensated)
        before = stage.journal.read()

        async with SagaClient(stage.coordinator.address) as client:
            again = await client.start(good, ScenarioInput(amount=1), saga_id="good")
            assert await again.wait() == committed
        await stage.coordinator.kill()
        await stage.coordinator.start()
        async with SagaClient(stage.coordinator.address) as client:
            assert await (await client.start(good, ScenarioInput(amount=1), saga_id="good")).wait() == committed
            assert await (await client.start(bad, ScenarioInput(amount=1), saga_id="bad")).wait() == compensated
        assert stage.journal.read() == before
