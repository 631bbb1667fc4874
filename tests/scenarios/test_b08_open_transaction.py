"""B8: an operator's open transaction on one row stops only that saga; whole sagas over real gRPC, on PostgreSQL."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, LiteralString

import grpc
import psycopg
import pytest

from amends import Committed
from amends.v1 import saga_pb2
from amends.v1 import saga_service_pb2 as pb
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.integration.api.refusals import refused
from tests.scenarios.inside import inside
from tests.scenarios.raw import Reply, raw_steps
from tests.scenarios.sagas import steps
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.scenario, pytest.mark.timeline]

COUNT = 30
BOUND = timedelta(seconds=60)
LOCKS: dict[str, LiteralString] = {
    "saga": "UPDATE saga SET unproven = unproven WHERE id = 'locked'",
    "intent": "UPDATE intent SET last_error = last_error WHERE saga_id = 'locked'",
}


@pytest.mark.parametrize("row", LOCKS)
async def test_b08_only_its_saga_waits(tmp_path: Path, postgres_ledger: str, row: str) -> None:
    """B8, L1, L2: thirty sagas begin and commit meanwhile; the one whose row is kept can be read, its abort is told to
    come again, and it commits once the transaction has ended, with each of its calls made once.
    """
    async with (
        raw_steps({"a": [Reply(delay_s=0.3)]}) as participant,
        inside(tmp_path, ledger_url=postgres_ledger) as coordinator,
    ):
        await coordinator.announce("raw", participant.address)
        saga = steps("a", "b", "c", attempt_timeout=BOUND)
        locked = await coordinator.client.start(saga, ScenarioInput(), saga_id="locked")
        await eventually(lambda: participant.has_seen(1), what="its first call is under way")
        with psycopg.connect(postgres_ledger) as operator:
            operator.execute(LOCKS[row])
            starts = (coordinator.client.start(saga, ScenarioInput(), saga_id=f"s-{n}") for n in range(COUNT))
            handles = await asyncio.gather(*starts)
            ends = await asyncio.gather(*(handle.wait(BOUND) for handle in handles))
            assert {type(end) for end in ends} == {Committed}
            assert (await locked.get()).state == saga_pb2.Saga.STATE_RUNNING
            if row == "saga":
                refusal = await refused(coordinator.sagas.AbortSaga(pb.AbortSagaRequest(saga_id="locked"), timeout=30))
                assert refusal.code is grpc.StatusCode.UNAVAILABLE
                assert refusal.retry_s > 0
            operator.rollback()
        assert isinstance(await locked.wait(BOUND), Committed)
        assert len([seen for seen in participant.seen if seen.metadata["amends-saga-id"] == "locked"]) == 3
