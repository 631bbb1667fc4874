"""The ledger port on a SQL database: who does what, in which thread.

Decisions and other writes go through the one writer thread, questions to the read pool; nothing here blocks the event
loop. Everything about SQL is in the modules that this one puts together.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import structlog

from amends_coordinator.core.ids import Instant
from amends_coordinator.ledger import measuring, migrate, purge, reads, tasks
from amends_coordinator.ledger.batch import Applied
from amends_coordinator.ledger.plans import Plans
from amends_coordinator.ledger.pool import ReadPool
from amends_coordinator.ledger.sql_repairs import SqlRepairs
from amends_coordinator.ledger.writer import BatchWritten, Statistics, Writer
from amends_coordinator.ports.ledger import (
    ROOMY,
    LedgerError,
    LedgerUnavailableError,
    NodeFencedError,
    Started,
    StoredSaga,
    SupersededError,
    UnreadableSagaError,
    WriteRefusedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amends_coordinator.core.definition import StoredDefinition
    from amends_coordinator.core.ids import DefinitionVersion, NodeId, SagaId
    from amends_coordinator.core.plan import Plan
    from amends_coordinator.core.states import SagaState
    from amends_coordinator.ledger.dialect import Lock, SqlDialect
    from amends_coordinator.ports.ledger import (
        DefinitionPage,
        InstanceRow,
        Measures,
        NewSaga,
        Page,
        ParticipantRow,
        Room,
        Write,
    )
    from amends_coordinator.ports.listing import SagaFilter
    from amends_coordinator.ports.repairs import LettersOpened

UNREADABLE_PAUSE_US = 60_000_000
"""How much later a saga that can't be read is due again."""

LOOK_INTERVAL_S = 0.5
"""How often a process that waits for a lease to end looks whether it still holds the lock."""

_log: Any = structlog.get_logger(__name__)  # structlog's loggers are untyped proxies


class _Access:
    """Everything that exists only while the ledger is open."""

    def __init__(self, *, node: NodeId, lock: Lock, writer: Writer, pool: ReadPool, plans: Plans) -> None:
        self.node = node
        self.lock = lock
        self.writer = writer
        self.pool = pool
        self.plans = plans
        self.others_left = 0
        """Sagas that belong to fenced incarnations still, because somebody kept their rows locked."""

    async def stop(self) -> None:
        """End the threads, then give the lock back."""
        await self.writer.stop()
        await asyncio.to_thread(self.pool.close)
        self.lock.release()


class SqlLedger(SqlRepairs):
    """The ledger port on one database.

    Args:
        dialect: the kind of database, and where it is.
        read_connections: how many questions are answered at once.
        patience_s: how long a call waits for a database that fails, before it raises `LedgerUnavailableError`.
        batch_written: is told in the writer's thread how many decisions were committed together, and in how many
            seconds.
        letters_opened: is told on the event loop of each dead letter that isn't part of a decision.
    """

    def __init__(
        self,
        dialect: SqlDialect,
        *,
        read_connections: int = 5,
        patience_s: float = 5.0,
        batch_written: BatchWritten | None = None,
        letters_opened: LettersOpened | None = None,
    ) -> None:
        self._dialect = dialect
        self._letters_opened = letters_opened
        self._batch_written = batch_written
        self._read_connections = read_connections
        self._patience_s = patience_s
        self._access: _Access | None = None
        self._statistics = Statistics()

    @property
    def statistics(self) -> Statistics:
        """Counts since the ledger was opened; they stay readable when it is closed."""
        return self._statistics if self._access is None else self._access.writer.statistics

    async def open(self, node: NodeId, *, plans: Callable[[StoredDefinition], Plan]) -> None:
        """See the port."""
        lock = self._dialect.lock()
        await asyncio.to_thread(migrate.require_database, self._dialect)
        await asyncio.to_thread(lock.acquire)
        try:
            await asyncio.to_thread(migrate.check_schema, self._dialect)
        except BaseException:
            lock.release()
            raise
        access = _Access(
            node=node,
            lock=lock,
            writer=Writer(
                self._dialect,
                node,
                patience_s=self._patience_s,
                require_lock=lock.require_held,
                batch_written=self._batch_written,
            ),
            pool=ReadPool(self._dialect, connections=self._read_connections),
            plans=Plans(plans),
        )
        try:
            await self._take_over(access)
        except BaseException:
            await access.stop()
            raise
        self._access = access
        with suppress(LedgerError):  # told at the next start, or by whoever looks at one of them
            await self._tell_of_later_formats(access)

    async def _tell_of_later_formats(self, access: _Access) -> None:
        """Have people hear of sagas that a later release has written, since nobody claims them here."""
        found = await access.pool.run(tasks.of_later_formats)
        if found:
            _log.error("sagas have a later format", count=len(found), example=next(iter(found)))
            errors = {saga_id: reads.of_later_format(saga_id, number) for saga_id, number in found.items()}
            await self.tell_unreadable(errors, Instant(time.time_ns() // 1_000))

    async def _take_over(self, access: _Access) -> None:
        """Fence the incarnations before this one, as soon as none of them can live on, and release their sagas."""
        node = access.node
        others = await access.writer.run_unfenced(lambda connection: tasks.arrive(connection, self._dialect, node))
        if others:
            await _hold_for(self._dialect.quarantine_s, access.lock)
        await access.writer.run_unfenced(lambda connection: tasks.fence_others(connection, node))
        await self._release_others(access)

    async def _release_others(self, access: _Access) -> None:
        """Release what fenced incarnations own, slice by slice. What somebody keeps locked is left for later."""
        released = tasks.SLICE
        while released == tasks.SLICE:
            released = await access.writer.run(lambda connection: tasks.release_others(connection, access.node))
        access.others_left = await access.writer.run(lambda connection: tasks.count_of_others(connection, access.node))

    async def close(self) -> None:
        """See the port."""
        access = self._opened()
        try:
            await access.writer.run(lambda connection: tasks.give_up(connection, access.node))
        except NodeFencedError:
            _log.warning("node was fenced before it closed the ledger", node=access.node)
        finally:
            await self.abandon()

    async def abandon(self) -> None:
        """Give the ledger up as a crash does: nothing is released, and no other method may follow."""
        access, self._access = self._opened(), None
        await access.stop()
        self._statistics = access.writer.statistics

    async def heartbeat(self, now: Instant) -> None:
        """See the port."""
        access = self._opened()
        await access.writer.run(lambda connection: tasks.heartbeat(connection, access.node, now))

    async def start(self, new: NewSaga) -> Started:
        """See the port."""
        verdict = await self._opened().writer.decide(new)
        if isinstance(verdict, Applied) and verdict.by_this:
            return Started(started=True, stored=StoredSaga(saga=new.saga, version=verdict.version, owner=new.owner))
        return Started(started=isinstance(verdict, Applied), stored=await self._reload(new.saga.id))

    async def append(self, write: Write) -> int:
        """See the port."""
        verdict = await self._opened().writer.decide(write)
        if isinstance(verdict, Applied):
            return verdict.version
        raise SupersededError(await self._reload(write.saga.id))

    async def load(self, saga_id: SagaId) -> StoredSaga | None:
        """See the port."""
        found = (await self._load([saga_id])).get(saga_id)
        if isinstance(found, UnreadableSagaError):
            raise found
        return found

    async def claim(
        self, *, now: Instant, limit: int, held: frozenset[SagaId], room: Room = ROOMY
    ) -> Sequence[StoredSaga]:
        """See the port."""
        access = self._opened()
        if access.others_left:
            await self._release_others(access)
        ids = await access.writer.run(
            lambda connection: tasks.claim(connection, access.node, now=now, limit=limit, held=held, room=room)
        )
        if not ids:
            return []
        found = await self._load(ids)
        unreadable = {saga_id: error for saga_id, error in found.items() if isinstance(error, UnreadableSagaError)}
        for saga_id, error in unreadable.items():
            _log.error("saga unreadable", saga_id=saga_id, error=str(error))
        if unreadable:
            later = Instant(now + UNREADABLE_PAUSE_US)
            await access.writer.run(lambda connection: tasks.postpone(connection, list(unreadable), later))
            await self.tell_unreadable(unreadable, now)
        loaded = (found.get(saga_id) for saga_id in ids)
        return [stored for stored in loaded if isinstance(stored, StoredSaga)]

    async def purge(self, *, ended_before: Instant, limit: int) -> int:
        """See the port."""
        return await self._opened().writer.run(
            lambda connection: purge.purge(connection, ended_before=ended_before, limit=limit)
        )

    async def list_sagas(self, wanted: SagaFilter, *, limit: int, before: tuple[Instant, SagaId] | None) -> Page:
        """See the port."""
        access = self._opened()
        return await access.pool.run(
            lambda connection: reads.list_sagas(connection, access.plans, wanted, limit=limit, before=before)
        )

    async def write_counts(self, ids: Sequence[SagaId]) -> dict[SagaId, int]:
        """See the port."""
        return await self._opened().pool.run(lambda connection: reads.write_counts(connection, ids))

    async def count_by_state(self) -> dict[SagaState, int]:
        """See the port."""
        return await self._opened().pool.run(reads.count_by_state)

    async def measure(self, now: Instant) -> Measures:
        """See the port."""
        return await self._opened().pool.run(lambda connection: measuring.measure(connection, now))

    async def put_definition(self, definition: StoredDefinition) -> StoredDefinition:
        """See the port."""
        return await self._opened().writer.run(
            lambda connection: tasks.put_definition(connection, self._dialect, definition)
        )

    async def get_definition(self, name: str, version: DefinitionVersion | None) -> StoredDefinition | None:
        """See the port."""
        return await self._opened().pool.run(lambda connection: reads.get_definition(connection, name, version))

    async def list_definitions(
        self, *, limit: int, before: tuple[Instant, str, DefinitionVersion] | None
    ) -> DefinitionPage:
        """See the port."""
        return await self._opened().pool.run(
            lambda connection: reads.list_definitions(connection, limit=limit, before=before)
        )

    async def put_participant(self, participant: ParticipantRow, instance: InstanceRow | None) -> None:
        """See the port."""
        await self._opened().writer.run(
            lambda connection: tasks.put_participant(connection, self._dialect, participant, instance)
        )

    async def remove_instance(self, participant: str, instance_id: str) -> None:
        """See the port."""
        await self._opened().writer.run(lambda connection: tasks.remove_instance(connection, participant, instance_id))

    async def remove_participant(self, participant: str) -> None:
        """See the port."""
        await self._opened().writer.run(lambda connection: tasks.remove_participant(connection, participant))

    async def participants(self) -> tuple[Sequence[ParticipantRow], Sequence[InstanceRow]]:
        """See the port."""
        return await self._opened().pool.run(reads.participants)

    def _opened(self) -> _Access:
        if self._access is None:
            raise LedgerUnavailableError("this ledger is not open: open it first, and use it no more once it is closed")
        return self._access

    async def _load(self, ids: Sequence[SagaId]) -> dict[SagaId, StoredSaga | UnreadableSagaError]:
        access = self._opened()
        return await access.pool.run(lambda connection: reads.load(connection, ids, access.plans))

    async def _reload(self, saga_id: SagaId) -> StoredSaga:
        """The saga that stood in the way of a decision."""
        stored = await self.load(saga_id)
        if stored is None:
            raise WriteRefusedError(f"saga {saga_id} was not changed: the ledger has no saga with this id")
        return stored


async def _hold_for(seconds: float, lock: Lock) -> None:
    """Wait while the lock is held. Time in which the machine sleeps counts.

    Raises:
        NodeFencedError, LedgerUnavailableError: the lock was lost.
    """
    end_s = _boot_time_s() + seconds
    while (left_s := end_s - _boot_time_s()) > 0:
        lock.require_held()
        await asyncio.sleep(min(left_s, LOOK_INTERVAL_S))
    lock.require_held()


def _boot_time_s() -> float:
    """A clock that never goes back, and that goes on while the machine sleeps where the system has one."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)
