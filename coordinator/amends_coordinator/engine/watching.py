"""Lets others look at sagas: those who wait for an end, and those who watch every change.

A saga that this node drives tells of itself. Of others the ledger is asked, every 200 ms for all of them together: how
often was each of these sagas written? Only what has changed is loaded. Nobody asks while nobody looks, nor for a saga
that is driven here. Where very many are looked at they take turns, so that the question stays small.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from typing import TYPE_CHECKING

from amends_coordinator.core.ids import SagaId
from amends_coordinator.core.states import IntentState
from amends_coordinator.engine.drivers import RESTING
from amends_coordinator.engine.waiting import Waiters, Watchers
from amends_coordinator.ports.driving import StoppingError, TooManyWatchersError, UnknownSagaError
from amends_coordinator.ports.ledger import LedgerError, LedgerUnavailableError, StoredSaga

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from amends_coordinator.core.saga import Saga
    from amends_coordinator.engine.driver import Surroundings
    from amends_coordinator.engine.drivers import Drivers
    from amends_coordinator.engine.waiting import Left

LOOK_INTERVAL_S = 0.2
"""How often the ledger is asked, in seconds."""

ASKED_AT_ONCE = 500
"""How many sagas one question is about, at most."""


class Watching:
    """One node's onlookers. To be told what the node's drivers do."""

    def __init__(self, around: Surroundings, drivers: Drivers) -> None:
        self._around = around
        self._drivers = drivers
        self._waiters = Waiters()
        self._watchers = Watchers()
        self._newest: dict[SagaId, StoredSaga] = {}  # what the onlookers of a saga were told of it last
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None
        self._asked_last = SagaId("")
        self._stopping = False

    async def wait(self, saga_id: SagaId, *, timeout_s: float) -> StoredSaga | None:
        """See `ports.driving.Driving.wait`."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        while True:
            left, timer = self._waiters.enter(saga_id), None
            try:
                # What a driver holds is durable, so nobody has to ask the ledger for a saga that is in memory.
                stored = self._drivers.find(saga_id) or await self._loaded(saga_id)
                if stored is None or self._is_told_at_once(stored):
                    return stored
                self._look_later()
                known, timer = stored, loop.call_at(end_s, self._time_is_over, left, stored)
                stored = await left
            finally:
                self._waiters.leave(saga_id, left)
                if timer is not None:
                    timer.cancel()
            if self._stopping:
                return stored or self._newest_of(known)
            if stored is not None and (stored.saga.state in RESTING or loop.time() >= end_s):
                return stored

    async def watch(self, saga_id: SagaId, *, known_version: int) -> AsyncGenerator[StoredSaga]:
        """See `ports.driving.Driving.watch`."""
        self._require_room()
        with self._watchers.entered(saga_id) as watcher:
            stored = self._drivers.driven(saga_id) or await self._loaded(saga_id)
            if stored is None:
                raise UnknownSagaError(saga_id)
            if stored.version != known_version:
                yield stored
            while not is_over(stored.saga):
                self._look_later()
                stored = await watcher.newer_than(stored.version)
                yield stored

    def stop(self) -> None:
        """Send everybody away: the node is stopping. Safe to repeat."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()
        self._waiters.wake_all()
        for saga_id in tuple(self._watchers.saga_ids):
            self._watchers.fail(saga_id, StoppingError("this coordinator is stopping"))

    def written(self, saga_id: SagaId) -> None:
        """A saga that is driven here was written, or is taken up. Every write of every saga passes through here."""
        if saga_id in self._watchers and (stored := self._drivers.driven(saga_id)) is not None:
            self._tell(stored)

    def settled(self, stored: StoredSaga) -> None:
        """An end is told when the driver lets go, which is at once, unless steps follow the compensated saga."""
        if stored.saga.due_time is not None:
            self._waiters.wake(stored.saga.id, stored)

    def left(self, saga_id: SagaId, stored: StoredSaga | None) -> None:
        """A driver has let go of a saga; None: how it stands isn't known here."""
        self._waiters.wake(saga_id, stored)
        if stored is not None and saga_id in self._watchers:
            self._tell(stored)

    def _require_room(self) -> None:
        if self._stopping:
            raise StoppingError("this coordinator is stopping")
        if len(self._watchers) >= self._around.settings.max_watchers:
            raise TooManyWatchersError(self._around.settings.max_watchers)

    def _is_told_at_once(self, stored: StoredSaga) -> bool:
        """Whether nobody waits for anything more: there is something to tell, or the node is stopping."""
        return stored.saga.state in RESTING or self._stopping

    def _time_is_over(self, left: Left, known: StoredSaga) -> None:
        """End a wait with the saga as it stands."""
        if not left.done():
            left.set_result(self._newest_of(known))

    def _newest_of(self, known: StoredSaga) -> StoredSaga:
        """The newest that this node knows of a saga."""
        saga_id = known.saga.id
        return self._drivers.find(saga_id) or max(known, self._newest.get(saga_id, known), key=_version)

    async def _loaded(self, saga_id: SagaId) -> StoredSaga | None:
        """The saga from the ledger; what is new in it is told to all who look at it."""
        stored = await self._around.ledger.load(saga_id)
        if stored is not None:
            self._tell(stored)
        return stored

    def _tell(self, stored: StoredSaga) -> None:
        """Tell all who look at a saga how it stands."""
        saga_id = stored.saga.id
        told = self._newest.get(saga_id)
        if told is None or told.version < stored.version:
            self._newest[saga_id] = stored
        self._watchers.tell(stored)
        if stored.saga.state in RESTING:
            self._waiters.wake(saga_id, stored)

    def _look_later(self) -> None:
        """Have the ledger asked soon, if that isn't planned already."""
        if self._timer is None and self._asking is None and not self._stopping:
            self._timer = asyncio.get_running_loop().call_later(LOOK_INTERVAL_S, self._look)

    def _look(self) -> None:
        """Ask the ledger of the sagas that nobody here drives, or find that nobody looks any more."""
        self._timer = None
        looked_at = self._waiters.saga_ids | self._watchers.saga_ids
        self._newest = {saga_id: stored for saga_id, stored in self._newest.items() if saga_id in looked_at}
        if not looked_at:
            return
        elsewhere = [saga_id for saga_id in looked_at if self._drivers.driven(saga_id) is None]
        if not elsewhere:
            self._look_later()
            return
        self._asking = asyncio.create_task(self._ask(self._whose_turn_it_is(elsewhere)), name="look at sagas")
        self._asking.add_done_callback(self._asked)

    def _whose_turn_it_is(self, ids: list[SagaId]) -> Sequence[SagaId]:
        """As many as one question takes; the others come first the next time."""
        if len(ids) <= ASKED_AT_ONCE:
            return ids
        ids.sort()
        begin = bisect_right(ids, self._asked_last)
        chosen = (ids[begin:] + ids[:begin])[:ASKED_AT_ONCE]
        self._asked_last = chosen[-1]
        return chosen

    async def _ask(self, ids: Sequence[SagaId]) -> None:
        """Ask the ledger which of these sagas have changed, and tell of those. While it can't answer, all wait on."""
        try:
            for saga_id, version in (await self._around.ledger.write_counts(ids)).items():
                told = self._newest.get(saga_id)
                if told is None or told.version < version:
                    await self._look_at(saga_id)
        except LedgerUnavailableError:
            return

    async def _look_at(self, saga_id: SagaId) -> None:
        try:
            await self._loaded(saga_id)
        except LedgerUnavailableError:
            raise
        except LedgerError as error:  # it can't be read any more, and whoever looks at it has to hear that
            self._watchers.fail(saga_id, error)
            self._waiters.wake(saga_id, None)

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._asking = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            context = {"message": "looking at sagas failed", "exception": error, "task": task}
            asyncio.get_running_loop().call_exception_handler(context)
        self._look_later()


def is_over(saga: Saga) -> bool:
    """Whether a saga has ended and nothing is left to do, not even for a person whose decision a step waits for."""
    parked = any(intent.state is IntentState.PARKED for intent in saga.intents)
    return saga.state.ended and saga.due_time is None and not parked


def _version(stored: StoredSaga) -> int:
    return stored.version
