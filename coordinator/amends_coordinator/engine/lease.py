"""The node's own lease: for how long it may still call participants without having proven that it isn't shut out.

Another process may shut this one out of the ledger once it has seen no sign of life for a whole lease. So a node whose
last successful write *began* longer ago than that (its ledger was away, or the process or its machine stood still)
calls nobody until a write has succeeded again. The clock counts the time in which the machine sleeps.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amends_coordinator.ports.clock import Clock


class Lease:
    """One incarnation's lease. To be made and used on one event loop.

    Args:
        clock: tells the time.
        ttl_s: how long the lease lasts from the beginning of a successful write, in seconds.
    """

    def __init__(self, clock: Clock, *, ttl_s: float) -> None:
        self._clock = clock
        self._ttl_s = ttl_s
        self._began_s = float("-inf")
        self._renewed = asyncio.Event()

    @property
    def holds(self) -> bool:
        """Whether calls may be made."""
        return self._clock.elapsed_s() - self._began_s < self._ttl_s

    def renew(self, began_s: float) -> None:
        """Tell of a write that succeeded and began at this time of `Clock.elapsed_s`."""
        if began_s > self._began_s:
            self._began_s = began_s
            self._renewed.set()

    async def held(self) -> None:
        """Return as soon as calls may be made."""
        while not self.holds:
            self._renewed.clear()
            await self._renewed.wait()
