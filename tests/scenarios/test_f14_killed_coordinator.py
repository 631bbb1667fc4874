"""F14: the coordinator is killed with SIGKILL at every point of a saga, and started again under either host name."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from amends import Committed, Compensated, SagaClient
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.oracle import judge
from tests.scenarios.outside import writes_blocked
from tests.scenarios.sagas import Scene, scene, steps
from tests.waiting import eventually

pytestmark = [pytest.mark.scenario, pytest.mark.crash]

BOUND = timedelta(seconds=60)
NODE_NAMES = ["first-host", "second-host"]


async def _restart(stage: Scene, node_name: str) -> None:
    await stage.coordinator.kill()
    stage.coordinator.set(AMENDS_NODE_NAME=node_name)
    await stage.coordinator.start()


@pytest.mark.parametrize("node_name", NODE_NAMES)
async def test_f14_after_start_saga_answered(tmp_path: Path, node_name: str) -> None:
    """S11: what a client was told is durable."""
    async with scene(tmp_path, AMENDS_NODE_NAME="first-host") as stage:
        async with SagaClient(stage.coordinator.address) as client:
            await client.start(steps("a", "b"), ScenarioInput(), saga_id="f14")
        await _restart(stage, node_name)
        async with SagaClient(stage.coordinator.address) as client:
            assert isinstance(await client.handle(steps("a", "b"), "f14").wait(BOUND), Committed)
            judge(await client.get("f14"), stage.journal)


@pytest.mark.parametrize("node_name", NODE_NAMES)
async def test_f14_during_an_action(tmp_path: Path, node_name: str) -> None:
    """S2, S12: the call is repeated with its key; the coordinator's own death rolls nothing back."""
    async with scene(tmp_path, AMENDS_NODE_NAME="first-host") as stage:
        stage.script(b=["hold", "ok"])
        saga = steps("a", "b", attempt_timeout=timedelta(seconds=30))
        async with SagaClient(stage.coordinator.address) as client:
            await client.start(saga, ScenarioInput(), saga_id="f14")
            await eventually(lambda: len(stage.journal.effects()) == 2, what="b takes effect", bound_s=30)
        await _restart(stage, node_name)
        async with SagaClient(stage.coordinator.address) as client:
            assert isinstance(await client.handle(saga, "f14").wait(BOUND), Committed)
            judge(await client.get("f14"), stage.journal)
        assert [call.attempt for call in stage.journal.begun("b")] == [1, 2]


@pytest.mark.parametrize("node_name", NODE_NAMES)
async def test_f14_between_reply_and_record(tmp_path: Path, node_name: str) -> None:
    """S1, S2: the reply is lost with the coordinator; the step is settled by the participant's memory of the key."""
    async with scene(tmp_path, AMENDS_NODE_NAME="first-host") as stage:
        stage.script(b=["delay:300", "ok"])
        saga = steps("a", "b", attempt_timeout=timedelta(seconds=30))
        async with SagaClient(stage.coordinator.address) as client:
            await client.start(saga, ScenarioInput(), saga_id="f14")
            await eventually(lambda: len(stage.journal.effects()) == 2, what="b takes effect", bound_s=30)
            with writes_blocked(tmp_path / "ledger.db"):
                await eventually(lambda: stage.journal.ended("b"), what="b replies", bound_s=30)
                await stage.coordinator.kill()
        await _restart(stage, node_name)
        async with SagaClient(stage.coordinator.address) as client:
            assert isinstance(await client.handle(saga, "f14").wait(BOUND), Committed)
            judge(await client.get("f14"), stage.journal)
        assert [call.attempt for call in stage.journal.begun("b")] == [1, 2]


@pytest.mark.parametrize("node_name", NODE_NAMES)
async def test_f14_during_a_compensation(tmp_path: Path, node_name: str) -> None:
    """S4, S5: backward recovery goes on where it was; every undo once."""
    async with scene(tmp_path, AMENDS_NODE_NAME="first-host") as stage:
        stage.script(c=["reject"], undo_b=["hold", "ok"])
        saga = steps("a", "b", "c", attempt_timeout=timedelta(seconds=30))
        async with SagaClient(stage.coordinator.address) as client:
            await client.start(saga, ScenarioInput(), saga_id="f14")
            await eventually(lambda: len(stage.journal.effects("compensation")) == 1, what="b is undone", bound_s=30)
        await _restart(stage, node_name)
        async with SagaClient(stage.coordinator.address) as client:
            assert isinstance(await client.handle(saga, "f14").wait(BOUND), Compensated)
            judge(await client.get("f14"), stage.journal)
        assert [entry.step for entry in stage.journal.effects("compensation")] == ["b", "a"]
