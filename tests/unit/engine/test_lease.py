"""A node whose lease could be over calls nobody (S7)."""

from __future__ import annotations

import asyncio
import time

from amends_coordinator.core.ids import Instant
from amends_coordinator.core.states import SagaState
from amends_coordinator.engine.lease import Lease
from amends_coordinator.ledger.memory import MemoryLedger
from amends_coordinator.ports.ledger import LedgerUnavailableError, Write
from tests.unit.engine.rig import rig
from tests.waiting import eventually, pause


class HandClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now(self) -> Instant:
        """See the port."""
        return Instant(round(self.seconds * 1e6))

    def elapsed_s(self) -> float:
        """See the port."""
        return self.seconds

    def fraction(self) -> float:
        """See the port."""
        return 0.5


async def test_a_lease_counts_from_the_beginning_of_the_last_write() -> None:
    """S7: what counts is when a write that succeeded began, however long it took, and an older one takes nothing."""
    clock = HandClock()
    lease = Lease(clock, ttl_s=10)
    seen = [lease.holds]  # nothing was proven yet
    lease.renew(95.0)
    lease.renew(91.0)
    seen.append(lease.holds)
    clock.seconds = 105.0
    seen.append(lease.holds)
    assert seen == [False, True, False]
    waiting = asyncio.create_task(lease.held())
    lease.renew(94.0)
    await pause()
    assert not waiting.done(), "a write that began too long ago proves nothing"
    lease.renew(104.0)
    await asyncio.wait_for(waiting, 10)


class DrowsyLedger(MemoryLedger):
    """The ledger in memory, which takes longer than a lease for one write, and has no heartbeat until it is told to."""

    def __init__(self, *, lease_ttl_s: float) -> None:
        super().__init__()
        self._lease_ttl_s = lease_ttl_s
        self.asleep = False
        self.written = asyncio.Event()
        self.awake = asyncio.Event()

    async def append(self, write: Write) -> int:
        """See the port."""
        version = await super().append(write)
        if not self.asleep:
            self.asleep = True
            end_s = time.monotonic() + 2 * self._lease_ttl_s
            await eventually(lambda: time.monotonic() > end_s, what="the lease is over")
            self.written.set()
        return version

    async def heartbeat(self, now: Instant) -> None:
        """See the port."""
        if self.asleep and not self.awake.is_set():
            raise LedgerUnavailableError("planted: no heartbeat is written")
        await super().heartbeat(now)


async def test_no_call_is_made_when_the_lease_could_be_over() -> None:
    """S7, L1: the write that announces b takes longer than the lease; b is called only once a heartbeat has proven that
    this node isn't shut out, and then the saga ends by itself.
    """
    ttl_s = 0.2
    ledger = DrowsyLedger(lease_ttl_s=ttl_s)
    async with rig(ledger, lease_ttl_s=ttl_s, heartbeat_interval_s=0.02) as stage:
        await stage.start("s", "a", "b")
        await asyncio.wait_for(ledger.written.wait(), 30)
        outages = stage.telemetry.outages
        await eventually(lambda: stage.telemetry.outages > outages + 3, what="heartbeats were tried after the write")
        assert stage.participants.sides("s") == ["a/action#1"]
        ledger.awake.set()
        assert (await stage.end("s")).saga.state is SagaState.COMMITTED
        assert stage.participants.sides("s") == ["a/action#1", "b/action#1"]
