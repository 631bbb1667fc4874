"""The ledger in memory with somebody around its writes, for rehearsals: who may also kill the process that uses it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from amends_coordinator.ledger.memory import MemoryLedger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amends_coordinator.core.ids import NodeId, SagaId
    from amends_coordinator.core.saga import Failure, Intent, Saga
    from amends_coordinator.ledger.memory import MemoryStore
    from amends_coordinator.ports.ledger import NewSaga, Started, Write
    from amends_coordinator.ports.repairs import AbortAnswer, AuditEntry

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerWrite:
    """One write of a saga: what it makes of the saga, and the intents that it adds or changes."""

    saga: Saga
    intents: tuple[Intent, ...]
    verb: str = ""
    """What a person did, "" where the coordinator decided it."""


class AroundWrites(Protocol):
    """Who stands around the writes."""

    async def write(self, write: LedgerWrite, commit: Callable[[], Awaitable[T]]) -> T:
        """Stands around a write: `commit` makes it durable."""
        ...


class WatchedLedger(MemoryLedger):
    """A ledger in memory around whose writes a rehearsal stands, and which a killed incarnation can't use any more."""

    def __init__(self, store: MemoryStore, *, around: AroundWrites) -> None:
        super().__init__(store)
        self._watcher = around
        self._is_dead = False

    def die(self) -> None:
        """Give the ledger up as a killed process does: nothing is written or read, and nobody hears of it."""
        self._is_dead = True
        self.abandon()

    async def start(self, new: NewSaga) -> Started:
        """See the port."""
        write = LedgerWrite(saga=new.saga, intents=new.saga.intents)
        return await self._around(write, lambda: super(WatchedLedger, self).start(new))

    async def append(self, write: Write) -> int:
        """See the port."""
        around = LedgerWrite(saga=write.saga, intents=write.intents)
        return await self._around(around, lambda: super(WatchedLedger, self).append(write))

    async def append_verb(self, write: Write, audit: AuditEntry) -> int:
        """See the port."""
        around = LedgerWrite(saga=write.saga, intents=write.intents, verb=audit.verb)
        return await self._around(around, lambda: super(WatchedLedger, self).append_verb(write, audit))

    async def request_abort(self, saga_id: SagaId, *, failure: Failure, audit: AuditEntry) -> AbortAnswer | None:
        """See the port."""
        stored = await self.load(saga_id)
        if stored is None:
            return None
        around = LedgerWrite(saga=stored.saga, intents=(), verb=audit.verb)
        return await self._around(
            around, lambda: super(WatchedLedger, self).request_abort(saga_id, failure=failure, audit=audit)
        )

    async def _around(self, write: LedgerWrite, commit: Callable[[], Awaitable[T]]) -> T:
        result = await self._watcher.write(write, commit)
        await self._live()
        return result

    async def _writing(self) -> NodeId:
        await self._live()
        node = await super()._writing()
        await self._live()
        return node

    async def _reading(self) -> None:
        await self._live()
        await super()._reading()

    async def _live(self) -> None:
        """A dead process does not go on: whoever asks for it waits until it is cancelled."""
        if self._is_dead:
            await asyncio.get_running_loop().create_future()
