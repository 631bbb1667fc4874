"""F01: the participant commits its effect and dies before replying."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from amends import Committed, Compensated, Retry, SagaClient
from amends.v1 import saga_pb2
from amends.v1.saga_service_pb2 import ListSagasRequest
from amends.v1.saga_service_pb2_grpc import SagaServiceStub
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.oracle import judge
from tests.scenarios.sagas import Scene, scene, steps
from tests.waiting import pause

pytestmark = pytest.mark.scenario

SHORT = Retry(
    initial_delay=timedelta(milliseconds=20),
    maximum_delay=timedelta(milliseconds=50),
    total_timeout=timedelta(milliseconds=300),
)


async def _died(stage: Scene) -> None:
    """Wait until the participant has killed itself, as its script says."""
    if stage.participant is not None:
        await stage.participant.ended()


async def _is_listed(sagas: SagaServiceStub, request: ListSagasRequest) -> bool:
    """Whether the saga is in the list."""
    return any(saga.saga_id == "f01" for saga in (await sagas.ListSagas(request)).sagas)


async def test_f01_it_is_called_again_with_the_same_key_and_commits(tmp_path: Path) -> None:
    """S2, S3: after its restart the key is answered from its memory: one effect."""
    async with scene(tmp_path) as stage, SagaClient(stage.coordinator.address) as client:
        stage.script(b=["die", "ok"])
        handle = await client.start(steps("a", "b", "c"), ScenarioInput(), saga_id="f01")
        await _died(stage)
        await stage.start_participant()
        assert isinstance(await handle.wait(timedelta(seconds=60)), Committed)
        judge(await client.get("f01"), stage.journal)
        assert len({entry.attempt for entry in stage.journal.begun("b")}) > 1
        assert len([entry for entry in stage.journal.effects() if entry.step == "b"]) == 1


async def test_f01_it_is_compensated_if_only_the_compensation_answers(tmp_path: Path) -> None:
    """S4: an action that may have happened is undone by its key, and the step before it too."""
    async with scene(tmp_path) as stage, SagaClient(stage.coordinator.address) as client:
        stage.script(b=["die", "unavailable"])
        saga = steps("a", "b", retry=SHORT, by_key=True)
        handle = await client.start(saga, ScenarioInput(), saga_id="f01")
        await _died(stage)
        await stage.start_participant()
        assert isinstance(await handle.wait(timedelta(seconds=60)), Compensated)
        ended = await client.get("f01")
        judge(ended, stage.journal)
        assert [entry.step for entry in stage.journal.effects("compensation")] == ["b", "a"]
        assert ended.unproven, "the participant proved neither that b happened nor that it never will"


async def test_f01_while_neither_answers_it_stays_owed_and_ends_when_one_does(tmp_path: Path) -> None:
    """S4, L1: an outage parks nothing; what is owed stays owed until it can be called."""
    async with (
        scene(tmp_path) as stage,
        SagaClient(stage.coordinator.address) as client,
        grpc.aio.insecure_channel(stage.coordinator.address) as channel,
    ):
        sagas = SagaServiceStub(channel)
        stage.script(b=["die", "ok"])
        saga = steps("a", "b", retry=SHORT, by_key=True, timeout=timedelta(seconds=3))
        handle = await client.start(saga, ScenarioInput(), saga_id="f01")
        await _died(stage)
        owed = await stage.saga_once(client, "f01", lambda saga: saga.compensations_owed == 2)
        assert owed.state == saga_pb2.Saga.STATE_COMPENSATING
        assert not owed.attention_required
        stalled = ListSagasRequest(stalled_for=Duration(nanos=300_000_000), compensations_owed=True)
        async with asyncio.timeout(30):
            while not await _is_listed(sagas, stalled):
                await pause()
        await stage.start_participant()
        assert isinstance(await handle.wait(timedelta(seconds=60)), Compensated)
        judge(await client.get("f01"), stage.journal)
        assert not await _is_listed(sagas, stalled)
