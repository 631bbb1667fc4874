"""Those who wait for sagas to end, and wakes them. Nothing here asks the ledger."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Generator

    from amends_coordinator.core.ids import SagaId
    from amends_coordinator.ports.ledger import StoredSaga

    Left: TypeAlias = asyncio.Future[StoredSaga | None]


class Waiters:
    """Futures by saga id. One who waits enters first and looks at the saga afterwards, so that no end is missed."""

    def __init__(self) -> None:
        self._futures: defaultdict[SagaId, set[Left]] = defaultdict(set)

    @contextmanager
    def entered(self, saga_id: SagaId) -> Generator[Left]:
        """A future for the saga as its driver left it: ended, or waiting for something; None where that isn't known."""
        future: Left = asyncio.get_running_loop().create_future()
        self._futures[saga_id].add(future)
        try:
            yield future
        finally:
            future.cancel()
            self._futures[saga_id].discard(future)
            if not self._futures[saga_id]:
                del self._futures[saga_id]

    def wake(self, saga_id: SagaId, stored: StoredSaga | None) -> None:
        """Wake everybody who waits for this saga, with the saga as it was made durable last."""
        for future in self._futures.get(saga_id, ()):
            if not future.done():
                future.set_result(stored)

    def wake_all(self) -> None:
        """Wake everybody: the node is stopping."""
        for saga_id in tuple(self._futures):
            self.wake(saga_id, None)
