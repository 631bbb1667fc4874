"""What a lookup proves about an action whose own answer never came."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import pytest

from amends import Committed, Compensated, CompensationFailed, Retry, Saga, method
from amends.v1 import saga_pb2
from scenario.v1.scenario_pb2 import (
    DoFindableRequest,
    FindRequest,
    FindResponse,
    ScenarioInput,
    ScenarioOutput,
)
from scenario.v1.scenario_pb2_grpc import StepServiceServicer
from tests.scenarios.inside import inside
from tests.scenarios.raw import Reply, raw_steps
from tests.scenarios.sagas import Do, Undo
from tests.waiting import pause

if TYPE_CHECKING:
    from pathlib import Path

    from amends import SagaClient

pytestmark = pytest.mark.scenario

DoFindable = method(StepServiceServicer.DoFindable, DoFindableRequest, FindResponse)
Find = method(StepServiceServicer.Find, FindRequest, FindResponse)

BOUND = timedelta(seconds=30)
SHORT = Retry(
    initial_delay=timedelta(milliseconds=10),
    maximum_delay=timedelta(milliseconds=20),
    total_timeout=timedelta(milliseconds=150),
    maximum_refusal_count=2,
)
LOST = Reply(code=grpc.StatusCode.UNAVAILABLE, text="the answer is lost")
MISSING = Reply(code=grpc.StatusCode.NOT_FOUND, text="never heard of it")
SEALED = Reply(code=grpc.StatusCode.NOT_FOUND, text="never, and never will", trailers=(("amends-sealed", "1"),))
FOUND = Reply(body=FindResponse(effect_id="found", name="b").SerializeToString())


def saga_of(*, by_key: bool = False, pivot: bool = False) -> Saga[ScenarioInput, ScenarioOutput]:
    """Step a, then step b that can be looked up."""
    saga = Saga("findable", input=ScenarioInput, output=ScenarioOutput)
    first = saga.step("a", Do(name="a"), retry=SHORT)
    first.compensated_by(Undo(effect_id=first.response.effect_id, name="a"), retry=SHORT)
    if pivot:
        last = saga.pivot("b", DoFindable(name="b"), retry=SHORT)
    else:
        last = saga.step("b", DoFindable(name="b"), retry=SHORT)
        undo = Undo(name="b") if by_key else Undo(effect_id=last.response.effect_id, name="b")
        last.compensated_by(undo, by_key=by_key, retry=SHORT)
    last.looked_up_by(Find(name="b"), retry=SHORT)
    saga.output(ScenarioOutput)(effect_id=last.response.effect_id)
    return saga


def undone(seen: list[str]) -> list[str]:
    """The steps whose compensations were called."""
    return [side.partition("/")[0] for side in seen if side.endswith("/compensation")]


@pytest.mark.parametrize("pivot", [False, True])
@pytest.mark.parametrize("lookup", [[FOUND], [LOST, FOUND], [Reply(body=b"\xff garbage"), FOUND]])
async def test_ok_means_that_it_happened(tmp_path: Path, *, pivot: bool, lookup: list[Reply]) -> None:
    """S3: the lookup's answer takes the place of the action's, its response too."""
    async with raw_steps({"b": [LOST], "find_b": lookup}) as steps, inside(tmp_path) as coordinator:
        await coordinator.announce("raw", steps.address)
        handle = await coordinator.client.start(saga_of(pivot=pivot), ScenarioInput(), saga_id="s")
        end = await handle.wait(BOUND)
        found = await handle.get()
    assert isinstance(end, Committed)
    assert end.output.effect_id == "found"
    assert not found.unproven
    asked = steps.calls("b/lookup")
    assert {seen.metadata["idempotency-key"] for seen in asked} == {"s/b/lookup"}
    assert {seen.metadata["amends-action-key"] for seen in asked} == {"s/b/action"}


@pytest.mark.parametrize("pivot", [False, True])
async def test_a_sealed_not_found_means_that_it_never_will(tmp_path: Path, *, pivot: bool) -> None:
    """S4, S6: the step counts as rejected; what was before it is undone, it is not."""
    async with raw_steps({"b": [LOST], "find_b": [SEALED]}) as steps, inside(tmp_path) as coordinator:
        await coordinator.announce("raw", steps.address)
        handle = await coordinator.client.start(saga_of(pivot=pivot), ScenarioInput(), saga_id="s")
        assert isinstance(await handle.wait(BOUND), Compensated)
        found = await handle.get()
    assert undone([seen.side for seen in steps.seen]) == ["a"]
    assert not found.unproven
    assert not found.point_of_no_return_passed


async def test_an_unsealed_not_found_proves_nothing_and_the_undo_finds_it_by_key(tmp_path: Path) -> None:
    """S4, V2: it may still arrive, so it is undone, and the end is marked unproven."""
    async with raw_steps({"b": [LOST], "find_b": [MISSING]}) as steps, inside(tmp_path) as coordinator:
        await coordinator.announce("raw", steps.address)
        handle = await coordinator.client.start(saga_of(by_key=True), ScenarioInput(), saga_id="s")
        assert isinstance(await handle.wait(BOUND), Compensated)
        assert (await handle.get()).unproven
    assert undone([seen.side for seen in steps.seen]) == ["b", "a"]
    assert len(steps.calls("b/lookup")) == 1, "a clear answer is not asked for again"


@pytest.mark.parametrize("lookup", [MISSING, LOST, Reply(body=b"\xff"), Reply(code=grpc.StatusCode.UNIMPLEMENTED)])
async def test_where_nothing_is_proven_a_person_decides(tmp_path: Path, lookup: Reply) -> None:
    """S4: the undo needs the response that never came: parked as OUTCOME_UNKNOWN, the older step undone."""
    async with raw_steps({"b": [LOST], "find_b": [lookup]}) as steps, inside(tmp_path) as coordinator:
        await coordinator.announce("raw", steps.address)
        handle = await coordinator.client.start(saga_of(), ScenarioInput(), saga_id="s")
        end = await handle.wait(BOUND)
    assert isinstance(end, CompensationFailed)
    assert [(each.step, each.direction, each.reason) for each in end.dead_letters] == [
        ("b", "ACTION", "OUTCOME_UNKNOWN")
    ]
    assert undone([seen.side for seen in steps.seen]) == ["a"]


async def test_a_pivot_is_never_guessed(tmp_path: Path) -> None:
    """S6, V1: an unproven pivot parks; the saga stays RUNNING, nothing is undone, attention is asked for."""
    async with raw_steps({"b": [LOST], "find_b": [MISSING]}) as steps, inside(tmp_path) as coordinator:
        await coordinator.announce("raw", steps.address)
        await coordinator.client.start(saga_of(pivot=True), ScenarioInput(), saga_id="s")
        found = await parked(coordinator.client)
    assert found.state == saga_pb2.Saga.STATE_RUNNING
    assert found.point_of_no_return_passed
    assert [letter.reason for letter in found.dead_letters] == [saga_pb2.DeadLetter.REASON_OUTCOME_UNKNOWN]
    assert undone([seen.side for seen in steps.seen]) == []


async def parked(client: SagaClient) -> saga_pb2.Saga:
    """The saga once a dead letter is open; the test's own timeout bounds it."""
    while not (found := await client.get("s")).attention_required:
        await pause()
    return found
