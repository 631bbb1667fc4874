"""F06: the same saga id with amount 10, then with amount 99; the same with an action's key at an SDK participant."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import grpc
import pytest

from amends import Committed, SagaClient, SagaIdInUseError
from scenario.v1.scenario_pb2 import DoRequest, DoResponse, ScenarioInput
from scenario.v1.scenario_pb2_grpc import StepServiceStub
from tests.scenarios.oracle import judge
from tests.scenarios.sagas import scene, steps
from tests.waiting import eventually

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


async def test_f06_fifty_mixed_calls_at_once_make_one_saga(ledger_url: str, tmp_path: Path) -> None:
    """S9: whichever input comes first is the saga; the others are told."""
    async with scene(tmp_path, AMENDS_LEDGER_URL=ledger_url) as stage, SagaClient(stage.coordinator.address) as client:
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


async def test_f06_an_actions_key_with_another_request_is_refused_by_its_participant(tmp_path: Path) -> None:
    """F06, S2: whoever uses the key again with amount 99 runs nothing; a copy of a running call waits for its end, and
    has no effect of its own.
    """
    async with scene(tmp_path) as stage, SagaClient(stage.coordinator.address) as client:
        stage.script(b=["delay:400"])
        handle = await client.start(steps("a", "b"), ScenarioInput(amount=10), saga_id="f06")
        await eventually(lambda: any(entry.step == "b" for entry in stage.journal.read()), what="b is running")
        participant = stage.participant
        assert participant is not None
        async with grpc.aio.insecure_channel(participant.address) as channel:
            step_service = StepServiceStub(channel)
            copied = await code_of(step_service.Do(DoRequest(name="b", amount=10), metadata=as_step("b"), timeout=10))
            assert isinstance(await handle.wait(), Committed)
            other = await code_of(step_service.Do(DoRequest(name="a", amount=99), metadata=as_step("a"), timeout=10))
        assert (copied, other) == (grpc.StatusCode.OK, grpc.StatusCode.ABORTED)
        assert [entry.event for entry in stage.journal.read()] == [*["begin", "effect", "end"] * 2, "begin", "end"]


def as_step(step: str) -> tuple[tuple[str, str], ...]:
    """What the coordinator sends with the action of this step."""
    return (
        ("idempotency-key", f"f06/{step}/action"),
        ("amends-key-uuid", "00000000-0000-5000-8000-000000000000"),
        ("amends-ledger", "default"),
        ("amends-saga-id", "f06"),
        ("amends-step", step),
        ("amends-kind", "compensatable"),
        ("amends-direction", "action"),
        ("amends-attempt", "1"),
    )


async def code_of(call: Awaitable[DoResponse]) -> grpc.StatusCode:
    """How a call ends."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK
