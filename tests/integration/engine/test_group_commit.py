"""What sagas cost the ledger: transactions counted over real gRPC, real participants and a real SQLite file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from amends import Committed, ParticipantServer, SagaClient
from amends_coordinator.bootstrap import Coordinator, migrate
from amends_coordinator.ledger.factory import dialect_of
from amends_coordinator.ledger.sql import SqlLedger
from amends_coordinator.ports.ledger import NewSaga, Started, Write
from amends_coordinator.settings import Settings
from scenario.v1.scenario_pb2 import DoRequest, DoResponse, ScenarioInput
from tests.benchmarks.participant import Context, Nothing
from tests.scenarios.outside import writes_blocked
from tests.scenarios.sagas import steps
from tests.waiting import eventually

SAGA = steps("a", "b", "c", attempt_timeout=timedelta(minutes=1))  # a call that waits for others is not too slow
DECISIONS = len(SAGA.steps) + 1  # one for each answer, and the start
AT_ONCE = 64
LEDGER = "ledger.db"


class CountingLedger(SqlLedger):
    """The real ledger, which tells how many decisions were given to it."""

    given = 0

    async def start(self, new: NewSaga) -> Started:
        """See the port."""
        self.given += 1
        return await super().start(new)

    async def append(self, write: Write) -> int:
        """See the port."""
        self.given += 1
        return await super().append(write)


class Together(Nothing):
    """Answers at once; holding, it answers all calls that have come when it is told to."""

    def __init__(self) -> None:
        self.holding, self.waiting, self._go_on = False, 0, asyncio.Event()

    async def Do(self, request: DoRequest, context: Context) -> DoResponse:
        """Perhaps wait, and do nothing."""
        if self.holding:
            self.waiting += 1
            await self._go_on.wait()
        return await super().Do(request, context)

    def answer(self) -> None:
        """Answer them."""
        self._go_on.set()
        self.waiting, self._go_on = 0, asyncio.Event()


@asynccontextmanager
async def running(data: Path, *, does: Nothing) -> AsyncGenerator[tuple[SagaClient, CountingLedger]]:
    """A coordinator, a participant, and a client; nothing but sagas writes to the ledger."""
    settings = Settings.load(
        ledger_url=f"sqlite:///{data / LEDGER}",
        port=0,
        lease_ttl_s=3600,
        heartbeat_interval_s=1200,
        sweep_interval_s=1200,
        participant_lease_s=3600,
    )
    migrate(settings.ledger_url)
    ledger = CountingLedger(dialect_of(settings.ledger_url))
    coordinator = Coordinator(settings, ledger=ledger)
    try:
        port = await coordinator.start()
        address = f"127.0.0.1:{port}"
        participant = ParticipantServer("steps", coordinator=address)
        participant.add(does)
        async with participant, SagaClient(address) as client:
            await participant.announced()
            yield client, ledger
    finally:
        await coordinator.stop(1)


async def all_decided(ledger: CountingLedger, *, times: int) -> None:
    """Wait until each saga has decided so often."""
    await eventually(lambda: ledger.given == AT_ONCE * times, what=f"all have decided {times} times")


async def test_a_saga_costs_one_transaction_for_each_step_and_one_more(tmp_path: Path) -> None:
    """S1, S11: the outcome of a step and the intent of the next one are written together, and durably."""
    async with running(tmp_path, does=Nothing()) as (client, ledger):
        assert isinstance(await client.run(SAGA, ScenarioInput()), Committed)
        before = ledger.statistics.commits
        assert isinstance(await client.run(SAGA, ScenarioInput()), Committed)
        assert ledger.statistics.commits - before <= DECISIONS


async def test_sixty_four_sagas_at_once_share_transactions(tmp_path: Path) -> None:
    """L2: group commit; what is decided while the disk works goes into one transaction.

    However fast or slow this machine is: all 64 have decided before the disk goes on.
    """
    together = Together()
    async with running(tmp_path, does=together) as (client, ledger):
        assert isinstance(await client.run(SAGA, ScenarioInput()), Committed)
        together.holding, ledger.given, before = True, 0, ledger.statistics
        runs: list[asyncio.Task[object]] = []
        for decision in range(1, DECISIONS + 1):
            with writes_blocked(tmp_path / LEDGER):
                if runs:
                    together.answer()
                else:
                    runs = [asyncio.create_task(client.run(SAGA, ScenarioInput())) for _ in range(AT_ONCE)]
                await all_decided(ledger, times=decision)
            if decision < DECISIONS:
                await eventually(lambda: together.waiting == AT_ONCE, what="all have called their next step")
        assert all(isinstance(end, Committed) for end in await asyncio.gather(*runs))
        after = ledger.statistics
        assert after.decisions - before.decisions == AT_ONCE * DECISIONS
        assert after.commits - before.commits <= 2 * DECISIONS
