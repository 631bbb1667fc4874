"""Those who wait for sagas to end and those who watch them, and wakes them. Nothing here asks the ledger."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Generator, Set

    from amends_coordinator.core.ids import SagaId
    from amends_coordinator.ports.ledger import StoredSaga

    Left: TypeAlias = asyncio.Future[StoredSaga | None]


class Waiters:
    """Futures by saga id. One who waits enters first and looks at the saga afterwards, so that no end is missed."""

    def __init__(self) -> None:
        self._futures: defaultdict[SagaId, set[Left]] = defaultdict(set)

    @property
    def saga_ids(self) -> Set[SagaId]:
        """The sagas whose end is waited for."""
        return self._futures.keys()

    def enter(self, saga_id: SagaId) -> Left:
        """A future for the saga as its driver left it: ended, or waiting for something; None where that isn't known. To
        be given back to `leave`, whatever happens.
        """
        future: Left = asyncio.get_running_loop().create_future()
        self._futures[saga_id].add(future)
        return future

    def leave(self, saga_id: SagaId, future: Left) -> None:
        """One who waited is gone."""
        future.cancel()
        others = self._futures.get(saga_id)
        if others is not None:
            others.discard(future)
            if not others:
                del self._futures[saga_id]

    def wake(self, saga_id: SagaId, stored: StoredSaga | None) -> None:
        """Wake everybody who waits for this saga, with the saga as it was made durable last. Nobody waits for it then,
        so that it isn't asked for.
        """
        for future in self._futures.pop(saga_id, ()):
            if not future.done():
                future.set_result(stored)

    def wake_all(self) -> None:
        """Wake everybody: the node is stopping."""
        for saga_id in tuple(self._futures):
            self.wake(saga_id, None)


class Watcher:
    """One who watches a saga. Of what isn't taken yet only the newest is kept, so a slow reader costs one saga."""

    def __init__(self) -> None:
        self._newest: StoredSaga | None = None
        self._error: Exception | None = None
        self._news = asyncio.Event()

    def offer(self, stored: StoredSaga) -> None:
        """Tell of a saga as it was made durable, in any order."""
        if self._newest is None or stored.version > self._newest.version:
            self._newest = stored
            self._news.set()

    def fail(self, error: Exception) -> None:
        """Let the next look end with an error."""
        self._error = error
        self._news.set()

    async def newer_than(self, version: int) -> StoredSaga:
        """The newest that is known of the saga, once that is newer than `version`. Raises what it was failed with."""
        while True:
            if self._error is not None:
                raise self._error
            if self._newest is not None and self._newest.version > version:
                return self._newest
            self._news.clear()
            await self._news.wait()


class Watchers:
    """Watchers by saga id. Like one who waits, a watcher enters first and looks at the saga afterwards."""

    def __init__(self) -> None:
        self._watchers: defaultdict[SagaId, set[Watcher]] = defaultdict(set)
        self._count = 0

    def __contains__(self, saga_id: SagaId) -> bool:
        return saga_id in self._watchers

    def __len__(self) -> int:
        return self._count

    @property
    def saga_ids(self) -> Set[SagaId]:
        """The sagas that are watched."""
        return self._watchers.keys()

    @contextmanager
    def entered(self, saga_id: SagaId) -> Generator[Watcher]:
        """A watcher that is told of the saga from now on."""
        watcher = Watcher()
        self._watchers[saga_id].add(watcher)
        self._count += 1
        try:
            yield watcher
        finally:
            self._count -= 1
            self._watchers[saga_id].discard(watcher)
            if not self._watchers[saga_id]:
                del self._watchers[saga_id]

    def tell(self, stored: StoredSaga) -> None:
        """Tell everybody who watches this saga."""
        for watcher in self._watchers.get(stored.saga.id, ()):
            watcher.offer(stored)

    def fail(self, saga_id: SagaId, error: Exception) -> None:
        """Let everybody who watches this saga end with an error."""
        for watcher in self._watchers.get(saga_id, ()):
            watcher.fail(error)
