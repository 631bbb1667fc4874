"""Retention: empties sagas that ended long ago, a few at a time, so that it never holds up one that is driven.

Every batch is one short transaction of the ledger's writer, under its fence, and after each comes a pause of several
times as long: whatever else is to be written has its turn in between. The rows stay for ever, so that an id runs once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from amends_coordinator.core.ids import Instant
from amends_coordinator.ports.ledger import LedgerUnavailableError, NodeFencedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from amends_coordinator.engine.driver import Surroundings

EMPTIED_AT_ONCE = 100
"""How many sagas one transaction empties at most. Most of what it costs is its commit, so a smaller one would hold up a
decision of a running saga for about as long (some milliseconds), and more often."""

TOLD_AT_MOST = 10_000
"""How many sagas are emptied at most before it is told, while there are more and more of them."""

SHORTEST_PAUSE_S = 0.02
PAUSE_PER_WORK = 4.0
"""How much longer than a batch the pause after it is: at most a fifth of the writer's time goes into retention."""

LONGEST_INTERVAL_S = 60.0
"""How often is looked for sagas whose time has come, at the least."""


class Retention:
    """One node's retention. `run` is its whole life; cancelling ends it.

    Args:
        around: what the node works with.
        emptied: called after each batch that emptied something, with the instant before which these sagas had ended.
    """

    def __init__(self, around: Surroundings, *, emptied: Callable[[Instant], None]) -> None:
        self._around = around
        self._emptied = emptied
        self._keep_us = round(around.settings.retention_s * 1e6)
        # A tenth of the time that sagas are kept is late enough to be wrong by.
        self._interval_s = max(around.settings.sweep_interval_s, min(LONGEST_INTERVAL_S, self._keep_us / 1e7))
        self._untold = 0

    async def run(self) -> None:
        """Empty sagas until this node is shut out of the ledger. Returns at once where sagas are kept for ever."""
        while self._keep_us:
            try:
                pause_s = await self._empty_some()
            except NodeFencedError:
                return  # the sweeper meets it, too, and ends this incarnation
            except LedgerUnavailableError:
                pause_s = self._interval_s  # the sweeper tells of outages
            except Exception as error:  # noqa: BLE001 - nothing that goes wrong here may end a node that drives sagas
                self._around.telemetry.retention_failed(error)
                pause_s = self._interval_s
            await asyncio.sleep(pause_s)

    async def _empty_some(self) -> float:
        """Empty one batch; answers for how long to pause now, in seconds."""
        clock = self._around.clock
        ended_before, began_s = Instant(clock.now() - self._keep_us), clock.elapsed_s()
        count = await self._around.ledger.purge(ended_before=ended_before, limit=EMPTIED_AT_ONCE)
        if count:
            self._around.lease.renew(began_s)
            self._emptied(ended_before)
        self._untold += count
        there_are_more = count == EMPTIED_AT_ONCE
        if self._untold and (not there_are_more or self._untold >= TOLD_AT_MOST):
            self._around.telemetry.sagas_purged(self._untold)
            self._untold = 0
        took_s = clock.elapsed_s() - began_s
        return max(SHORTEST_PAUSE_S, took_s * PAUSE_PER_WORK) if there_are_more else self._interval_s
