"""Retention beside the sagas that run: batches, faults, and what memory still knew of emptied sagas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amends_coordinator.core.ids import SagaId
from amends_coordinator.core.states import SagaState
from amends_coordinator.engine.retention import EMPTIED_AT_ONCE
from amends_coordinator.ledger.memory import MemoryLedger
from amends_coordinator.ports.ledger import LedgerUnavailableError
from tests.unit.engine.rig import rig
from tests.waiting import eventually

if TYPE_CHECKING:
    from amends_coordinator.core.ids import Instant

SOON_S = 0.05
MANY = 250


class PurgingLedger(MemoryLedger):
    """The ledger in memory, which remembers how it was asked to empty sagas and raises what is planted."""

    def __init__(self, *faults: Exception) -> None:
        super().__init__()
        self.faults = list(faults)
        self.emptied: list[int] = []

    async def purge(self, *, ended_before: Instant, limit: int) -> int:
        """See the port."""
        if self.faults:
            raise self.faults.pop()
        assert limit == EMPTIED_AT_ONCE
        self.emptied.append(await super().purge(ended_before=ended_before, limit=limit))
        return self.emptied[-1]


async def test_ended_sagas_are_emptied_a_few_at_a_time_and_told_together() -> None:
    """L2: no batch is larger than its bound; the log hears of what was done, not of every batch."""
    ledger = PurgingLedger()
    async with rig(ledger, retention_s=SOON_S) as stage:
        for number in range(MANY):
            await stage.start(f"s-{number}", "a")
        for number in range(MANY):
            await stage.end(f"s-{number}")
        await eventually(lambda: sum(ledger.emptied) == MANY == sum(stage.telemetry.purged), what="all are emptied")
        assert max(ledger.emptied) <= EMPTIED_AT_ONCE
        assert all(stage.telemetry.purged)


async def test_memory_forgets_what_the_ledger_has_emptied() -> None:
    """S11: the last ends are remembered for those who ask; an emptied saga's payloads are told by nobody any more."""
    async with rig(PurgingLedger(), retention_s=SOON_S) as stage:
        await stage.start("s", "a", payload=b"\x0a\x01x")
        await eventually(lambda: bool(stage.telemetry.purged), what="it is emptied")
        end = await stage.end("s")
        assert (end.saga.state, end.saga.input, end.saga.intents) == (SagaState.COMMITTED, b"", ())
        assert end.purged is not None


async def test_faults_of_retention_stop_nobody() -> None:
    """L1, L2: an outage is the sweeper's to tell; what else goes wrong is told; both are tried again."""
    ledger = PurgingLedger(ValueError("planted"), LedgerUnavailableError("planted"))
    async with rig(ledger, retention_s=SOON_S) as stage:
        await stage.start("s")
        assert (await stage.end("s")).saga.state is SagaState.COMMITTED
        await eventually(lambda: bool(stage.telemetry.purged), what="it is emptied")
        assert [str(error) for error in stage.telemetry.failures] == ["planted"]
        assert stage.telemetry.outages == 0


async def test_sagas_are_kept_for_ever_where_so_set() -> None:
    """S11: 0 means for ever; nobody even looks."""
    ledger = PurgingLedger(AssertionError("nobody was to look"))
    async with rig(ledger, retention_s=0) as stage:
        await stage.start("s")
        await stage.end("s")
    assert ledger.faults
    record = ledger.store.records[SagaId("s")]
    assert (record.stored.purged, len(record.stored.saga.intents)) == (None, 2)
