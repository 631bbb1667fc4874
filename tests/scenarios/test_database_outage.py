"""The ledger's PostgreSQL goes and comes back under running sagas."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import pytest

from amends import Committed
from amends.v1 import saga_service_pb2 as pb
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.integration.api.refusals import refused
from tests.scenarios.inside import inside
from tests.scenarios.raw import Reply, raw_steps
from tests.scenarios.sagas import steps
from tests.waiting import eventually, pause

if TYPE_CHECKING:
    from pathlib import Path

    from tests.postgres import PostgresServer
    from tests.scenarios.inside import Inside

pytestmark = [pytest.mark.scenario, pytest.mark.crash]

COUNT = 20
BOUND = timedelta(seconds=60)
LEASE_S = 1.5


async def serves(coordinator: Inside) -> bool:
    """Whether the coordinator answers questions about sagas."""
    try:
        await coordinator.sagas.ListSagas(pb.ListSagasRequest(), timeout=5)
    except grpc.aio.AioRpcError:
        return False
    return True


async def test_running_sagas_go_on_by_themselves(
    tmp_path: Path, postgres: PostgresServer, postgres_ledger: str
) -> None:
    """S11, S12, L1: while the database is away a start is told to come again; when it is back every saga commits, none
    is rolled back, and whatever was called again had the same key.
    """
    async with (
        raw_steps({"b": [Reply(delay_s=0.5)]}) as participant,
        inside(
            tmp_path, ledger_url=postgres_ledger, lease_ttl_s=LEASE_S, heartbeat_interval_s=LEASE_S / 4
        ) as coordinator,
    ):
        await coordinator.announce("raw", participant.address)
        saga = steps("a", "b", "c")
        starts = (coordinator.client.start(saga, ScenarioInput(), saga_id=f"s-{n}") for n in range(COUNT))
        handles = await asyncio.gather(*starts)
        known = await handles[0].get()
        await eventually(lambda: len(participant.calls("b/action")) >= COUNT // 2, what="sagas are in their middle")
        postgres.kill()
        try:
            late = pb.StartSagaRequest(saga_id="late", definition_name=known.definition_name, input=known.input)
            refusal = await refused(coordinator.sagas.StartSaga(late, timeout=30))
            assert refusal.code is grpc.StatusCode.UNAVAILABLE
            assert refusal.retry_s > 0
        finally:
            postgres.start()
        while not await serves(coordinator):
            await pause()
        ends = await asyncio.gather(*(handle.wait(BOUND) for handle in handles))
        assert {type(end) for end in ends} == {Committed}
        keys = {seen.metadata["idempotency-key"] for seen in participant.seen}
        assert len(keys) == 3 * COUNT
