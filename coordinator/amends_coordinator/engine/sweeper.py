"""The sweeper: finds what needs work, from the first moment on and without any traffic.

Each pass writes the node's sign of life when that is due, and takes up every saga that is due and that nobody in this
process drives: those that an earlier incarnation left behind, those that waited for longer than a saga may stay in
memory, those that found no room. It survives outages of the ledger; only being fenced ends it.

Where there was no room, the sagas in the ledger come before new ones: until a pass has found that none of them waits
any more, new ones wait behind them (`behind`), and the next pass comes as soon as there is room again. Where only one
participant's share of the room is used up (`engine.shares`), nobody else waits for that.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from amends_coordinator.ports.ledger import LedgerUnavailableError, UnreadableSagaError

if TYPE_CHECKING:
    from amends_coordinator.core.ids import Instant
    from amends_coordinator.engine.driver import Surroundings
    from amends_coordinator.engine.drivers import Drivers
    from amends_coordinator.engine.shares import Shares
    from amends_coordinator.ports.ledger import NodeFencedError, StoredSaga

CLAIMED_AT_ONCE = 200
"""How many sagas one claim takes at most; adopting goes on in slices, so that other work gets its turn in between."""


ROOM_WORTH_A_PASS = 0.1
"""The part of the room in memory that has to be free before a pass is made early: a claim costs a transaction."""

SOON_S = 0.05
"""How long room for the sagas of one participant is collected: a claim looks past all of them that find none."""


class Sweeper:
    """One node's sweeper. `run` is its whole life; `stop` ends it."""

    def __init__(self, around: Surroundings, drivers: Drivers, shares: Shares) -> None:
        self._around = around
        self._drivers = drivers
        self._shares = shares
        self._wake = asyncio.Event()
        self._stopped = False
        self._fenced: NodeFencedError | None = None
        self._next_heartbeat_s = 0.0
        self._left_waiting = 0
        self._soon: asyncio.TimerHandle | None = None
        self.behind = False
        """Whether sagas may wait in the ledger for room in memory."""
        self.last_pass_time: Instant | None = None
        """When a pass was finished last; None before the first one."""

    def stop(self) -> None:
        """End `run` soon. Safe to repeat."""
        self._stopped = True
        self._wake.set()

    def fenced(self, error: NodeFencedError) -> None:
        """Tell that a write found this node shut out: `run` raises it."""
        self._fenced = error
        self._wake.set()

    def leave_waiting(self) -> None:
        """Tell that a saga was just written that waits in the ledger for room."""
        self._left_waiting += 1
        self.behind = True

    def room_made(self) -> None:
        """Tell that a saga has left memory: a pass is made early if others wait for that and it is worth it."""
        if self.behind and self._room() >= self._around.settings.max_running_sagas * ROOM_WORTH_A_PASS:
            self._wake.set()

    def look_now(self) -> None:
        """Tell that a saga has just come due: a pass is made early."""
        self._wake.set()

    def look_soon(self) -> None:
        """Tell that there is room for sagas of one participant: a pass is made a moment later, for all that get room
        until then.
        """
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SOON_S, self._look_now_at_last)

    def _look_now_at_last(self) -> None:
        self._soon = None
        self._wake.set()

    def _room(self) -> int:
        return self._around.settings.max_running_sagas - len(self._drivers)

    async def run(self) -> None:
        """Sweep until stopped.

        Raises:
            NodeFencedError: this incarnation is shut out; drop everything and start again as a new one.
        """
        while not self._stopped:
            try:
                await self._beat()
                await self._sweep()
                self.last_pass_time = self._around.clock.now()
            except LedgerUnavailableError as error:
                self._around.telemetry.ledger_unavailable(error)
            await self._pause()
            if self._fenced is not None:
                raise self._fenced

    async def _beat(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_heartbeat_s:
            began_s = self._around.clock.elapsed_s()
            await self._around.ledger.heartbeat(self._around.clock.now())
            self._around.lease.renew(began_s)
            self._next_heartbeat_s = now_s + self._around.settings.heartbeat_interval_s

    async def _sweep(self) -> None:
        """Take up due sagas, slice by slice, as long as there are any and there is room."""
        while not self._stopped:
            limit = min(self._room(), CLAIMED_AT_ONCE)
            if limit <= 0:
                self.behind = True
                return
            left_waiting = self._left_waiting
            if await self._claim(limit) < limit:
                # A saga that was left waiting since then may have come too late for this claim.
                self.behind = left_waiting != self._left_waiting
                return

    async def _claim(self, limit: int) -> int:
        """Take up to `limit` due sagas, of each participant as many as its share has room for; answers how many."""
        directory = self._around.directory
        room = self._shares.room(is_served=lambda name: len(directory.serving(name)) == 1)
        claimed = await self._around.ledger.claim(
            now=self._around.clock.now(), limit=limit, held=self._drivers.held, room=room.room
        )
        taken: Counter[str] = Counter()
        for stored in claimed:
            names = await self._adopt(stored)
            taken[stored.waits_for or (names[0] if len(names) == 1 else "")] += 1
        self._shares.claimed(room, taken, all_that_fit=len(claimed) < limit)
        return len(claimed)

    async def _adopt(self, stored: StoredSaga) -> tuple[str, ...]:
        try:
            return await self._drivers.adopt(stored)
        except UnreadableSagaError as error:
            await self._drivers.set_aside(stored.saga.id, error)
            return ()

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), self._around.settings.sweep_interval_s)
        except TimeoutError:
            return
        finally:
            self._wake.clear()
