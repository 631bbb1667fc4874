"""A trace stays whole whatever was killed in between: the ledger has every attempt, and the ids are computed anew."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from amends import Committed, SagaClient
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.sagas import scene, steps
from tests.telemetry.receiver import receiver
from tests.telemetry.test_traces import assert_whole, attempts_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.telemetry, pytest.mark.crash]

BOUND = timedelta(seconds=60)


async def test_a_saga_whose_coordinator_was_killed_twice_is_one_trace(tmp_path: Path) -> None:
    """Every attempt of every incarnation is in it, and each incarnation is named."""
    saga = steps("a", "b", attempt_timeout=timedelta(seconds=30))
    async with receiver() as sink, scene(tmp_path, AMENDS_OTLP_ENDPOINT=f"http://{sink.address}") as stage:
        stage.script(b=["hold", "hold", "ok"])
        async with SagaClient(stage.coordinator.address) as client:
            await client.start(saga, ScenarioInput(), saga_id="order-1")
        for attempt in (1, 2):
            await eventually(
                lambda n=attempt: len(stage.journal.begun("b")) == n, what=f"attempt {attempt}", bound_s=30
            )
            await stage.coordinator.kill()
            await stage.coordinator.start()
        async with SagaClient(stage.coordinator.address) as client:
            assert isinstance(await client.handle(saga, "order-1").wait(BOUND), Committed)
        spans = await sink.trace("order-1", span_count=5)
    assert_whole(spans, "order-1")
    assert attempts_of(spans) == [
        "a/action#1 succeeded", "b/action#1 unknown", "b/action#2 unknown", "b/action#3 succeeded",
    ]  # fmt: skip
    nodes = [span["amends.node"] for span in spans if span.attributes.get("amends.step") == "b"]
    assert len(set(nodes)) == 3
