"""F06: the same saga id with amount 10, then with amount 99."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from amends import Committed, SagaClient, SagaIdInUseError
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.oracle import judge
from tests.scenarios.sagas import scene, steps

pytestmark = pytest.mark.scenario


async def test_f06_refused_and_the_first_unchanged(tmp_path: Path) -> None:
    """S9: another input or definition under an id is refused, nothing new runs."""
    async with scene(tmp_path) as stage, SagaClient(stage.coordinator.address) as client:
        saga = steps("a", "b")
        first = await (await client.start(saga, ScenarioInput(amount=10), saga_id="f06")).wait()
        before = (await client.get("f06"), stage.journal.read())
        with pytest.raises(SagaIdInUseError):
            await client.start(saga, ScenarioInput(amount=99), saga_id="f06")
        with pytest.raises(SagaIdInUseError):
            await client.start(steps("a"), ScenarioInput(amount=10), saga_id="f06")
        assert isinstance(first, Committed)
        assert (await client.get("f06"), stage.journal.read()) == before


async def test_f06_fifty_mixed_calls_at_once_make_one_saga(tmp_path: Path) -> None:
    """S9: whichever input comes first is the saga; the others are told."""
    async with scene(tmp_path) as stage, SagaClient(stage.coordinator.address) as client:
        saga = steps("a", "b")
        amounts = [10 if number % 2 else 99 for number in range(50)]
        starts = (client.start(saga, ScenarioInput(amount=amount), saga_id="f06") for amount in amounts)
        answers = await asyncio.gather(*starts, return_exceptions=True)
        accepted = {a for a, answer in zip(amounts, answers, strict=True) if not isinstance(answer, BaseException)}
        refused = {a for a, answer in zip(amounts, answers, strict=True) if isinstance(answer, SagaIdInUseError)}
        assert len(accepted) == 1
        assert refused == {10, 99} - accepted
        assert isinstance(await client.handle(saga, "f06").wait(), Committed)
        judge(await client.get("f06"), stage.journal)
        assert [saga.saga_id async for saga in client.list()] == ["f06"]
