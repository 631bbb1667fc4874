"""What sagas cost the ledger: transactions counted over real gRPC, real participants and a real SQLite file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from amends import Committed, ParticipantServer, SagaClient
from amends_coordinator.bootstrap import Coordinator, migrate
from amends_coordinator.ledger.factory import open_ledger
from amends_coordinator.ledger.sql import SqlLedger
from amends_coordinator.settings import Settings
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.benchmarks.participant import Nothing
from tests.scenarios.sagas import steps

SAGA = steps("a", "b", "c")


def participant_at(address: str) -> ParticipantServer:
    """A participant that answers at once."""
    server = ParticipantServer("steps", coordinator=address)
    server.add(Nothing())
    return server


@asynccontextmanager
async def running(data: Path) -> AsyncGenerator[tuple[SagaClient, SqlLedger]]:
    """A coordinator, a participant that answers at once, and a client; nothing but sagas writes to the ledger."""
    settings = Settings.load(
        ledger_url=f"sqlite:///{data / 'ledger.db'}",
        port=0,
        lease_ttl_s=3600,
        heartbeat_interval_s=1200,
        sweep_interval_s=1200,
        participant_lease_s=3600,
    )
    migrate(settings.ledger_url)
    ledger = open_ledger(settings.ledger_url)
    assert isinstance(ledger, SqlLedger)
    coordinator = Coordinator(settings, ledger=ledger)
    try:
        port = await coordinator.start()
        address = f"127.0.0.1:{port}"
        async with participant_at(address) as participant, SagaClient(address) as client:
            await participant.announced()
            yield client, ledger
    finally:
        await coordinator.stop(1)


async def test_a_saga_costs_one_transaction_for_each_step_and_one_more(tmp_path: Path) -> None:
    """S1, S11: the outcome of a step and the intent of the next one are written together, and durably."""
    async with running(tmp_path) as (client, ledger):
        assert isinstance(await client.run(SAGA, ScenarioInput(), saga_id="warm-up"), Committed)
        before = ledger.statistics.commits
        assert isinstance(await client.run(SAGA, ScenarioInput(), saga_id="one"), Committed)
        assert ledger.statistics.commits - before <= len(SAGA.steps) + 1


async def test_sixty_four_sagas_at_once_share_transactions(tmp_path: Path) -> None:
    """L2: group commit; what is decided while the disk works goes into one transaction."""
    async with running(tmp_path) as (client, ledger):
        assert isinstance(await client.run(SAGA, ScenarioInput(), saga_id="warm-up"), Committed)
        before = ledger.statistics
        ends = await asyncio.gather(*(client.run(SAGA, ScenarioInput(), saga_id=f"one-{n}") for n in range(64)))
        assert all(isinstance(end, Committed) for end in ends)
        after = ledger.statistics
        assert after.decisions - before.decisions == 64 * (len(SAGA.steps) + 1)
        assert after.commits - before.commits <= (after.decisions - before.decisions) / 2
