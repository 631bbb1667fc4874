"""A trace stays whole whatever was killed in between: the ledger has every attempt, and the ids are computed anew."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest

from amends import Committed, Compensated, SagaClient
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.sagas import Scene, scene, steps
from tests.telemetry.receiver import Receiver, Span, receiver
from tests.telemetry.test_traces import assert_whole, attempts_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.telemetry, pytest.mark.crash]

BOUND = timedelta(seconds=60)


async def whole_trace(stage: Scene, sink: Receiver) -> list[Span]:
    """The saga's trace, once it has as many spans as the ledger has attempts, and the saga's own."""
    async with SagaClient(stage.coordinator.address) as client:
        saga = await client.get("order-1")
    return await sink.trace("order-1", span_count=1 + sum(len(intent.attempts) for intent in saga.intents))


def carried(spans: list[Span]) -> list[str]:
    """The attempts that were sent, numbered anew: at first the participant may not have announced itself yet."""
    numbers: Counter[str] = Counter()
    found: list[str] = []
    for attempt in attempts_of(spans):
        side, outcome = attempt.split("#")[0], attempt.split(" ")[1]
        if outcome != "not_sent":
            numbers[side] += 1
            found.append(f"{side}#{numbers[side]} {outcome}")
    return found


def _begun(stage: Scene, count: int) -> bool:
    return len(stage.journal.begun("b")) == count


async def test_spans_that_a_killed_process_took_with_it_are_emitted_again(tmp_path: Path) -> None:
    """A saga that ended just before its coordinator was killed is seen once the next one is there."""
    saga = steps("a", "b")
    # Nobody listens at first: so the spans are still in the queue when the process is killed.
    async with receiver() as sink, scene(tmp_path, AMENDS_OTLP_ENDPOINT="http://127.0.0.1:1") as stage:
        stage.script(b=["reject"])
        async with SagaClient(stage.coordinator.address) as client:
            await client.start(saga, ScenarioInput(), saga_id="order-1")
            assert isinstance(await client.handle(saga, "order-1").wait(BOUND), Compensated)
        await stage.coordinator.kill()
        stage.coordinator.set(AMENDS_OTLP_ENDPOINT=f"http://{sink.address}")
        await stage.coordinator.start()
        spans = await whole_trace(stage, sink)
    assert_whole(spans, "order-1")
    assert carried(spans) == ["a/action#1 succeeded", "b/action#1 rejected", "a/compensation#1 succeeded"]


async def test_a_saga_whose_coordinator_was_killed_twice_is_one_trace(tmp_path: Path) -> None:
    """Every attempt of every incarnation is in it, and each incarnation is named."""
    saga = steps("a", "b", attempt_timeout=timedelta(seconds=30))
    async with receiver() as sink, scene(tmp_path, AMENDS_OTLP_ENDPOINT=f"http://{sink.address}") as stage:
        stage.script(b=["hold", "hold", "ok"])
        async with SagaClient(stage.coordinator.address) as client:
            await client.start(saga, ScenarioInput(), saga_id="order-1")
        for attempt in (1, 2):
            await eventually(partial(_begun, stage, attempt), what=f"attempt {attempt}", bound_s=30)
            await stage.coordinator.kill()
            await stage.coordinator.start()
        async with SagaClient(stage.coordinator.address) as client:
            assert isinstance(await client.handle(saga, "order-1").wait(BOUND), Committed)
        spans = await whole_trace(stage, sink)
    assert_whole(spans, "order-1")
    assert carried(spans) == [
        "a/action#1 succeeded", "b/action#1 unknown", "b/action#2 unknown", "b/action#3 succeeded",
    ]  # fmt: skip
    nodes = [span["amends.node"] for span in spans if span.attributes.get("amends.step") == "b"]
    assert len(set(nodes)) == 3
