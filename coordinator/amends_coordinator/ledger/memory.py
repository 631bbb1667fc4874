"""The ledger in memory: the port's semantics without a database, for unit tests and simulation.

What a database would keep is in a `MemoryStore`; a `MemoryLedger` is one process's access to it. So a test can let an
incarnation crash (`abandon`) and open the same store again, as a restarted process opens its file again.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from amends_coordinator.core.ids import Instant
from amends_coordinator.core.states import DeadLetterReason, SagaState
from amends_coordinator.ledger.measuring import measures_of
from amends_coordinator.ledger.memory_lists import lets_through
from amends_coordinator.ledger.memory_repairs import MemoryRepairs
from amends_coordinator.ledger.memory_store import MemoryStore, Node, Record, emptied, goes_first, merged
from amends_coordinator.ledger.picking import Picking
from amends_coordinator.ports.ledger import (
    ROOMY,
    DefinitionPage,
    InputHash,
    LedgerLockedError,
    Page,
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
    from amends_coordinator.core.saga import Saga
    from amends_coordinator.ports.ledger import InstanceRow, Measures, NewSaga, ParticipantRow, Room, Write
    from amends_coordinator.ports.listing import SagaFilter

__all__ = ["MemoryLedger", "MemoryStore"]

_log: Any = structlog.get_logger(__name__)  # structlog's loggers are untyped proxies
_UNREADABLE_PAUSE_US = 60_000_000


class MemoryLedger(MemoryRepairs):
    """The ledger port on a `MemoryStore` (a new one unless given)."""

    async def open(self, node: NodeId, *, plans: Callable[[StoredDefinition], Plan]) -> None:
        """See the port."""
        store = self.store
        if store.holder is not None:
            raise LedgerLockedError(f"this in-memory ledger is held by node {store.holder}: close that one first")
        store.holder = node
        self._node = node
        self._make_plan = plans
        for other in store.nodes.values():
            other.fenced = True
        store.nodes[node] = Node(started=Instant(time.time_ns() // 1_000))
        self._release(lambda owner: owner is not None)

    async def close(self) -> None:
        """See the port."""
        self._release(lambda owner: owner == self._node)
        self.abandon()

    def abandon(self) -> None:
        """Give the ledger up as a crash does: nothing is released, and no other method may follow."""
        if self._node is not None and self.store.holder == self._node:
            self.store.holder = None
        self._node = None

    async def heartbeat(self, now: Instant) -> None:
        """See the port."""
        node = await self._writing()
        self.store.nodes[node].heartbeat = now

    async def start(self, new: NewSaga) -> Started:
        """See the port."""
        await self._writing()
        record = self.store.records.get(new.saga.id)
        if record is not None:
            return Started(started=record.start_token == new.start_token, stored=self._readable(record.stored))
        plan = new.saga.plan
        if (plan.name, plan.version) not in self.store.definitions:
            raise WriteRefusedError(
                f"saga {new.saga.id} was not stored: the ledger has no definition {plan.name} {plan.version}, "
                "put it there first"
            )
        stored = StoredSaga(saga=new.saga, version=1, owner=new.owner)
        self.store.records[new.saga.id] = Record(
            stored=stored,
            start_token=new.start_token,
            input_hash=InputHash(value=new.input_hash, recipe=new.input_hash_recipe),
            participants=frozenset(new.participants),
            goes_first=goes_first(new.saga),
            waits_for=new.waits_for,
        )
        return Started(started=True, stored=stored)

    async def append(self, write: Write) -> int:
        """See the port."""
        node = await self._writing()
        record = self.store.records.get(write.saga.id)
        if record is None:
            raise WriteRefusedError(f"saga {write.saga.id} was not changed: the ledger has no saga with this id")
        stored = record.stored
        if stored.version != write.seen_version or stored.owner != node:
            if record.last_write == write:
                return write.seen_version + 1
            raise SupersededError(self._readable(stored))
        record.stored = replace(stored, saga=merged(stored.saga, write), version=stored.version + 1)
        record.goes_first, record.waits_for = goes_first(write.saga), write.waits_for
        record.last_write = write
        return record.stored.version

    async def load(self, saga_id: SagaId) -> StoredSaga | None:
        """See the port."""
        await self._reading()
        record = self.store.records.get(saga_id)
        return None if record is None else self._readable(record.stored)

    async def claim(
        self, *, now: Instant, limit: int, held: frozenset[SagaId], room: Room = ROOMY
    ) -> Sequence[StoredSaga]:
        """See the port."""
        node = await self._writing()
        due = sorted(
            (not record.goes_first, record.stored.saga.due_time, saga_id)
            for saga_id, record in self.store.records.items()
            if _is_due(record.stored, node, now) and record.stored.saga.due_time is not None
        )
        picking = Picking(limit=limit, held=held, room=room)
        for _, _, saga_id in due:
            record = self.store.records[saga_id]
            picking.offer(saga_id, "" if _is_over(record.stored.saga, now) else record.waits_for)
        claimed: list[StoredSaga] = []
        for saga_id in picking.picked:
            record = self.store.records[saga_id]
            try:
                stored = self._readable(record.stored)
            except UnreadableSagaError as error:
                _log.error("saga unreadable", saga_id=saga_id, error=str(error))
                self.put_letter_of(saga_id, reason=DeadLetterReason.UNREADABLE, last_error=str(error), now=now)
                later = Instant(now + _UNREADABLE_PAUSE_US)
                record.stored = replace(record.stored, saga=replace(record.stored.saga, due_time=later))
                continue
            if stored.owner != node:
                stored = replace(stored, owner=node, version=stored.version + 1)
            record.stored = stored
            claimed.append(replace(stored, waits_for=record.waits_for))
        return claimed

    async def purge(self, *, ended_before: Instant, limit: int) -> int:
        """See the port."""
        await self._writing()
        over = sorted(
            (record.stored.saga.ended_time, saga_id)
            for saga_id, record in self.store.records.items()
            if _may_be_emptied(record.stored)
            and record.stored.saga.ended_time is not None
            and record.stored.saga.ended_time < ended_before
        )
        for _, saga_id in over[:limit]:
            record = self.store.records[saga_id]
            record.stored, record.last_write = emptied(record), None
            record.participants = frozenset()
        return len(over[:limit])

    async def list_sagas(self, wanted: SagaFilter, *, limit: int, before: tuple[Instant, SagaId] | None) -> Page:
        """See the port."""
        await self._reading()
        found = sorted(
            (
                record.stored
                for record in self.store.records.values()
                if (before is None or _position(record.stored) < before) and lets_through(wanted, record)
            ),
            key=_position,
            reverse=True,
        )
        shown = found[:limit]
        further = _position(shown[-1]) if shown and len(found) > limit else None
        steps_done = {stored.saga.id: stored.saga.steps_done for stored in shown if stored.saga.steps_done}
        return Page(sagas=tuple(self._summaries(shown)), next=further, steps_done=steps_done)

    async def write_counts(self, ids: Sequence[SagaId]) -> dict[SagaId, int]:
        """See the port."""
        await self._reading()
        return {saga_id: self.store.records[saga_id].stored.version for saga_id in ids if saga_id in self.store.records}

    async def count_by_state(self) -> dict[SagaState, int]:
        """See the port."""
        await self._reading()
        counts: dict[SagaState, int] = {}
        for record in self.store.records.values():
            state = record.stored.saga.state
            counts[state] = counts.get(state, 0) + 1
        return counts

    async def measure(self, now: Instant) -> Measures:
        """See the port."""
        await self._reading()
        return measures_of(list(self.store.records.values()), now)

    async def put_definition(self, definition: StoredDefinition) -> StoredDefinition:
        """See the port."""
        await self._writing()
        times = [each.created_time for each in self.store.definitions.values() if each.name == definition.name]
        created_time = max([definition.created_time, *(Instant(time + 1) for time in times)])
        newest = replace(definition, created_time=created_time)
        return self.store.definitions.setdefault((definition.name, definition.version), newest)

    async def get_definition(self, name: str, version: DefinitionVersion | None) -> StoredDefinition | None:
        """See the port."""
        await self._reading()
        if version is not None:
            return self.store.definitions.get((name, version))
        found = [definition for definition in self.store.definitions.values() if definition.name == name]
        return max(found, key=lambda definition: (definition.created_time, definition.version), default=None)

    async def list_definitions(
        self, *, limit: int, before: tuple[Instant, str, DefinitionVersion] | None
    ) -> DefinitionPage:
        """See the port."""
        await self._reading()
        newest_first = sorted(self.store.definitions.values(), key=_definition_position, reverse=True)
        rest = [each for each in newest_first if before is None or _definition_position(each) < before]
        shown = tuple(rest[:limit])
        return DefinitionPage(definitions=shown, next=_definition_position(shown[-1]) if len(rest) > limit else None)

    async def put_participant(self, participant: ParticipantRow, instance: InstanceRow | None) -> None:
        """See the port."""
        await self._writing()
        known = self.store.participants.get(participant.name)
        created_time = participant.created_time if known is None else known.created_time
        self.store.participants[participant.name] = replace(participant, created_time=created_time)
        if instance is None:
            self._remove_instances(participant.name)
        else:
            self.store.instances[instance.participant, instance.instance_id] = instance

    async def remove_instance(self, participant: str, instance_id: str) -> None:
        """See the port."""
        await self._writing()
        self.store.instances.pop((participant, instance_id), None)

    async def remove_participant(self, participant: str) -> None:
        """See the port."""
        await self._writing()
        self._remove_instances(participant)
        self.store.participants.pop(participant, None)

    async def participants(self) -> tuple[Sequence[ParticipantRow], Sequence[InstanceRow]]:
        """See the port."""
        await self._reading()
        instances = [self.store.instances[key] for key in sorted(self.store.instances)]
        return [self.store.participants[name] for name in sorted(self.store.participants)], instances

    def _remove_instances(self, participant: str) -> None:
        for key in [key for key in self.store.instances if key[0] == participant]:
            del self.store.instances[key]

    def _release(self, released: Callable[[NodeId | None], bool]) -> None:
        for record in self.store.records.values():
            stored = record.stored
            unfinished = stored.saga.due_time is not None or not stored.saga.state.ended
            if released(stored.owner) and unfinished:
                saga = replace(stored.saga, due_time=stored.saga.updated_time)
                record.stored = StoredSaga(saga=saga, version=stored.version + 1, owner=None)
                record.goes_first = True

    def _summaries(self, found: Sequence[StoredSaga]) -> list[StoredSaga]:
        summaries: list[StoredSaga] = []
        for stored in found:
            try:
                readable = self._readable(stored)
            except UnreadableSagaError as error:
                _log.error("saga unreadable", saga_id=stored.saga.id, error=str(error))
                continue
            summaries.append(replace(readable, saga=replace(readable.saga, intents=())))
        return summaries


def _position(stored: StoredSaga) -> tuple[Instant, SagaId]:
    return (stored.saga.created_time, stored.saga.id)


def _definition_position(stored: StoredDefinition) -> tuple[Instant, str, DefinitionVersion]:
    return (stored.created_time, stored.name, stored.version)


def _may_be_emptied(stored: StoredSaga) -> bool:
    saga = stored.saga
    return stored.purged is None and saga.state.ended and saga.due_time is None and not saga.attention_required


def _is_due(stored: StoredSaga, node: NodeId, now: Instant) -> bool:
    due_time = stored.saga.due_time
    free = stored.owner is None or stored.owner == node
    return free and due_time is not None and due_time <= now


def _is_over(saga: Saga, now: Instant) -> bool:
    """Whether the saga's timeout rolls it back, so that it is looked at whatever it waits for."""
    return saga.state is SagaState.RUNNING and not saga.point_of_no_return_passed and saga.deadline_time <= now
