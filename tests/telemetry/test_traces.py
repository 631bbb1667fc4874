"""Traces as a backend gets them: whole, under the starter's span, with the ids that participants were told."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import pytest

from amends import Committed, Compensated, Retry
from amends.v1 import saga_service_pb2
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.inside import Inside, inside
from tests.scenarios.raw import RawSteps, Reply, raw_steps
from tests.scenarios.sagas import Do, steps
from tests.telemetry.receiver import Receiver, Span, receiver

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

pytestmark = pytest.mark.telemetry

BOUND = timedelta(seconds=30)
CLIENT_KIND = 3
NO = Reply(code=grpc.StatusCode.FAILED_PRECONDITION, text="sold out")
LOST = Reply(code=grpc.StatusCode.UNAVAILABLE, text="gone")
ONCE_MORE = Retry(initial_delay=timedelta(milliseconds=10), maximum_delay=timedelta(milliseconds=10))


@pytest.fixture
async def sink() -> AsyncGenerator[Receiver]:
    """A backend."""
    async with receiver() as taking:
        yield taking


def settings(sink: Receiver, **more: object) -> dict[str, object]:
    """A coordinator that exports to the backend."""
    return {"otlp_endpoint": f"http://{sink.address}", "metrics_interval_s": 0.2, **more}


async def run(coordinator: Inside, participant: RawSteps, saga_id: str) -> object:
    """Run one saga of two steps, and answer how it ended."""
    await coordinator.announce("steps", participant.address)
    handle = await coordinator.client.start(steps("a", "b", retry=ONCE_MORE), ScenarioInput(amount=1), saga_id=saga_id)
    return await handle.wait(timeout=BOUND)


async def run_below(coordinator: Inside, traceparent: str) -> None:
    """Run a saga of one step under a span of its starter."""
    definition = steps("a").definition()
    await coordinator.sagas.RegisterSagaDefinition(
        saga_service_pb2.RegisterSagaDefinitionRequest(definition=definition)
    )
    request = saga_service_pb2.StartSagaRequest(saga_id="s-1", definition_name="scenario-a")
    request.input.Pack(ScenarioInput(amount=1))
    await coordinator.sagas.StartSaga(request, metadata=(("traceparent", traceparent),))
    await coordinator.sagas.WaitSaga(saga_service_pb2.WaitSagaRequest(saga_id="s-1"))


def assert_whole(spans: list[Span], saga_id: str) -> Span:
    """One root of ours, every attempt directly under it and inside it, no id twice; answers the saga's span."""
    (root,) = [span for span in spans if span.name.startswith("saga ")]
    attempts = [span for span in spans if span is not root]
    assert root["amends.saga.id"] == saga_id
    assert all(span.parent_id == root.span_id and span.kind == CLIENT_KIND for span in attempts)
    assert all(root.start_ns <= span.start_ns <= span.end_ns <= root.end_ns for span in attempts)
    assert len({span.span_id for span in spans}) == len(spans)
    return root


def attempts_of(spans: list[Span]) -> list[str]:
    """The attempts in order, as "step/direction#attempt outcome"."""
    calls = [span for span in spans if "amends.attempt" in span.attributes]
    return [
        f"{span['amends.step']}/{span['amends.direction']}#{span['amends.attempt']} {span['amends.outcome']}"
        for span in calls
    ]


async def test_a_committed_saga_is_one_trace_of_its_attempts(sink: Receiver, tmp_path: Path) -> None:
    """Every attempt is a span, the failed one too; participants were told the very ids that are emitted."""
    async with inside(tmp_path, **settings(sink)) as coordinator, raw_steps({"a": [LOST, Reply()]}) as participant:
        assert isinstance(await run(coordinator, participant, "s-1"), Committed)
        spans = await sink.trace("s-1", span_count=4)
    root = assert_whole(spans, "s-1")
    assert not root.is_error
    assert attempts_of(spans) == ["a/action#1 unknown", "a/action#2 succeeded", "b/action#1 succeeded"]
    told = {seen.metadata["traceparent"] for seen in participant.seen}
    assert told == {f"00-{span.trace_id}-{span.span_id}-01" for span in spans if span is not root}
    failed = next(span for span in spans if span.is_error)
    assert (failed["rpc.system.name"], failed["rpc.response.status_code"]) == ("grpc", "UNAVAILABLE")
    assert failed.name == failed["rpc.method"] == "scenario.v1.StepService/Do"


async def test_what_is_called_once_a_saga_is_compensated_is_seen_too(sink: Receiver, tmp_path: Path) -> None:
    """Attempts that end after their saga come after it, each once, as it went and not as it stood at that time."""
    saga = steps("a", retry=ONCE_MORE)
    saga.on_compensated("letter", Do(name="letter", amount=1), retry=ONCE_MORE)
    plan = {"a": [NO], "letter": [LOST, Reply(delay_s=0.1)]}
    async with inside(tmp_path, **settings(sink)) as coordinator, raw_steps(plan) as participant:
        await coordinator.announce("steps", participant.address)
        handle = await coordinator.client.start(saga, ScenarioInput(amount=1), saga_id="s-1")
        assert isinstance(await handle.wait(timeout=BOUND), Compensated)
        spans = await sink.trace("s-1", span_count=4)
    root = next(span for span in spans if span.name.startswith("saga "))
    assert attempts_of(spans) == ["a/action#1 rejected", "letter/action#1 unknown", "letter/action#2 succeeded"]
    assert all(span.parent_id == root.span_id for span in spans if span is not root)
    told = {seen.metadata["traceparent"].split("-")[2] for seen in participant.seen}
    assert told == {span.span_id for span in spans if span is not root}
    assert spans[-1].end_ns - spans[-1].start_ns >= 1e8


async def test_a_saga_that_does_not_commit_is_seen_whole_at_ratio_0(sink: Receiver, tmp_path: Path) -> None:
    """Sampling decides about what went well; what failed is always there, with what it failed of."""
    silent = settings(sink, trace_ratio=0.0)
    async with inside(tmp_path, **silent) as coordinator, raw_steps() as participant:
        assert isinstance(await run(coordinator, participant, "good"), Committed)
        participant.plan["b/action"] = [NO]
        assert isinstance(await run(coordinator, participant, "bad"), Compensated)
        spans = await sink.trace("bad", span_count=4)
    root = assert_whole(spans, "bad")
    assert root.is_error
    assert root.events == ("amends.saga.failure",)
    assert attempts_of(spans) == ["a/action#1 succeeded", "b/action#1 rejected", "a/compensation#1 succeeded"]
    assert {seen.metadata["traceparent"][-2:] for seen in participant.seen} == {"00"}
    assert not [span for span in sink.spans if span.attributes.get("amends.saga.id") == "good"]


@pytest.mark.parametrize(("flags", "is_seen"), [("01", True), ("00", False)])
async def test_the_starter_is_the_parent_and_says_whether_it_is_sampled(
    sink: Receiver, tmp_path: Path, flags: str, *, is_seen: bool
) -> None:
    """A saga hangs under whoever started it; what the starter decided about sampling holds for its participants too."""
    trace_id, parent_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    async with inside(tmp_path, **settings(sink, trace_ratio=0.0)) as coordinator, raw_steps() as participant:
        await coordinator.announce("steps", participant.address)
        await run_below(coordinator, f"00-{trace_id}-{parent_id}-{flags}")
        if is_seen:
            root = assert_whole(await sink.trace("s-1", span_count=2), "s-1")
            assert (root.trace_id, root.parent_id) == (trace_id, parent_id)
    (seen,) = participant.seen
    assert seen.metadata["traceparent"].split("-")[1] == trace_id
    assert seen.metadata["traceparent"].endswith(flags)
    assert bool(sink.spans) == is_seen


async def test_a_slow_saga_is_seen_at_ratio_0(sink: Receiver, tmp_path: Path) -> None:
    """What took long is worth a look although it went well."""
    slow = settings(sink, trace_ratio=0.0, trace_slow_s=0.1)
    slowly = Reply(delay_s=0.15)
    async with inside(tmp_path, **slow) as coordinator, raw_steps({"a": [slowly]}) as participant:
        assert isinstance(await run(coordinator, participant, "s-1"), Committed)
        assert_whole(await sink.trace("s-1", span_count=3), "s-1")


async def test_without_an_endpoint_the_starters_context_passes_through(tmp_path: Path) -> None:
    """Where nothing is exported there is no span to hang under: participants get the starter's own."""
    starter = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with inside(tmp_path) as coordinator, raw_steps() as participant:
        await coordinator.announce("steps", participant.address)
        await run_below(coordinator, starter)
    assert [seen.metadata["traceparent"] for seen in participant.seen] == [starter]
