"""The part of the ledger in memory that people need: `ports.repairs`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from amends_coordinator.core.ids import DeadLetterId, Instant, SagaId
from amends_coordinator.core.saga import DeadLetter
from amends_coordinator.core.states import SagaState
from amends_coordinator.ledger.memory_store import MemoryAccess, goes_first, merged
from amends_coordinator.ports.ledger import SupersededError, WriteRefusedError
from amends_coordinator.ports.repairs import (
    AbortAnswer,
    AuditPage,
    FoundLetter,
    LetterFilter,
    LetterGroup,
    LetterPage,
    NodeRow,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from amends_coordinator.core.saga import Failure, Saga
    from amends_coordinator.core.states import DeadLetterReason
    from amends_coordinator.ledger.memory_store import Record
    from amends_coordinator.ports.ledger import Write
    from amends_coordinator.ports.repairs import AuditEntry


class MemoryRepairs(MemoryAccess):
    """See the module."""

    async def append_verb(self, write: Write, audit: AuditEntry) -> int:
        """See the port."""
        await self._writing()
        record = self.store.records.get(write.saga.id)
        if record is None:
            raise WriteRefusedError(f"saga {write.saga.id} was not changed: the ledger has no saga with this id")
        if audit.id in self.store.audit:
            return record.stored.version
        if record.stored.version != write.seen_version:
            raise SupersededError(self._readable(record.stored))
        _change(record, merged(record.stored.saga, write))
        record.goes_first, record.waits_for = goes_first(write.saga), write.waits_for
        self.store.audit[audit.id] = audit
        return record.stored.version

    async def request_abort(self, saga_id: SagaId, *, failure: Failure, audit: AuditEntry) -> AbortAnswer | None:
        """See the port."""
        await self._writing()
        record = self.store.records.get(saga_id)
        if record is None:
            return None
        saga = record.stored.saga
        if saga.state is SagaState.RUNNING and not (saga.abort_requested or saga.point_of_no_return_passed):
            _change(record, _aborted(saga, failure))
            record.goes_first, record.waits_for = True, ""
            self.store.audit[audit.id] = audit
        saga = record.stored.saga
        accepted = saga.abort_requested or saga.state not in (SagaState.RUNNING, SagaState.COMMITTED)
        return AbortAnswer(accepted=accepted, stored=self._readable(record.stored))

    async def put_dead_letter(
        self, saga_id: SagaId, *, reason: DeadLetterReason, last_error: str, now: Instant
    ) -> DeadLetterId | None:
        """See the port."""
        await self._writing()
        return self.put_letter_of(saga_id, reason=reason, last_error=last_error, now=now)

    def put_letter_of(
        self, saga_id: SagaId, *, reason: DeadLetterReason, last_error: str, now: Instant
    ) -> DeadLetterId | None:
        """The same, within another write."""
        record = self.store.records.get(saga_id)
        known = () if record is None else record.stored.saga.dead_letters
        is_open = any(each.step is None and each.reason is reason and each.closed_time is None for each in known)
        if record is None or is_open:
            return None
        letter = DeadLetter(
            id=DeadLetterId(f"{saga_id}/-/-/{len(known) + 1}"),
            step=None,
            direction=None,
            reason=reason,
            last_error=last_error,
            opened_time=now,
        )
        _change(record, replace(record.stored.saga, dead_letters=(*known, letter), updated_time=now))
        if self._letters_opened is not None:
            self._letters_opened(reason, 1)
        return letter.id

    async def load_dead_letter(self, letter_id: DeadLetterId) -> FoundLetter | None:
        """See the port."""
        await self._reading()
        everything = self._letters(LetterFilter(closed_too=True))
        return next((found for found in everything if found.letter.id == letter_id), None)

    async def list_dead_letters(
        self, wanted: LetterFilter, *, limit: int, after: tuple[Instant, DeadLetterId] | None
    ) -> LetterPage:
        """See the port."""
        await self._reading()
        found = sorted(self._letters(wanted), key=_position)
        following = [each for each in found if after is None or _position(each) > after]
        shown = following[:limit]
        return LetterPage(letters=tuple(shown), next=_position(shown[-1]) if len(following) > limit else None)

    async def group_dead_letters(self, wanted: LetterFilter) -> Sequence[LetterGroup]:
        """See the port."""
        await self._reading()
        found = sorted(self._letters(wanted), key=_position, reverse=True)
        counts = Counter(_kind(each) for each in found)
        oldest = {_kind(each): each.letter.opened_time for each in found}
        groups = (
            LetterGroup(method=kind[0], reason=kind[1], last_code=kind[2], count=count, oldest_time=oldest[kind])
            for kind, count in counts.items()
        )
        return sorted(groups, key=lambda group: (-group.count, group.method, group.reason, group.last_code))

    async def list_audit_entries(
        self, saga_id: SagaId | None, *, limit: int, before: tuple[Instant, str] | None
    ) -> AuditPage:
        """See the port."""
        await self._reading()
        chosen = (entry for entry in self.store.audit.values() if saga_id is None or entry.saga_id == saga_id)
        found = sorted(chosen, key=_moment, reverse=True)
        following = [entry for entry in found if before is None or _moment(entry) < before]
        shown = following[:limit]
        return AuditPage(entries=tuple(shown), next=_moment(shown[-1]) if len(following) > limit else None)

    async def list_nodes(self) -> Sequence[NodeRow]:
        """See the port."""
        await self._reading()
        rows = (
            NodeRow(node_id=node_id, started_time=node.started, heartbeat_time=node.heartbeat, fenced=node.fenced)
            for node_id, node in self.store.nodes.items()
        )
        return sorted(rows, key=lambda row: (row.started_time, row.node_id), reverse=True)

    def _letters(self, wanted: LetterFilter) -> Iterator[FoundLetter]:
        for record in self.store.records.values():
            saga = record.stored.saga
            if wanted.saga_id in (None, saga.id):
                found = (_found(saga, letter) for letter in saga.dead_letters)
                yield from (each for each in found if _is_wanted(each, wanted))


def _found(saga: Saga, letter: DeadLetter) -> FoundLetter:
    intent = None
    if letter.step is not None and letter.direction is not None:
        intent = saga.intent(letter.step, letter.direction)
    return FoundLetter(
        saga_id=saga.id,
        definition_name=saga.plan.name,
        letter=letter,
        method="" if intent is None else intent.method,
        last_code="" if intent is None else intent.last_code,
    )


def _is_wanted(found: FoundLetter, wanted: LetterFilter) -> bool:
    return (
        (wanted.closed_too or found.letter.closed_time is None)
        and (not wanted.reasons or found.letter.reason in wanted.reasons)
        and wanted.method in ("", found.method)
    )


def _change(record: Record, saga: Saga) -> None:
    record.stored = replace(record.stored, saga=saga, version=record.stored.version + 1)


def _aborted(saga: Saga, failure: Failure) -> Saga:
    return replace(
        saga,
        abort_requested=True,
        failure=failure if saga.failure is None else saga.failure,
        due_time=failure.time,
        updated_time=failure.time,
        progress_time=failure.time,
    )


def _kind(found: FoundLetter) -> tuple[str, DeadLetterReason, str]:
    return (found.method, found.letter.reason, found.last_code)


def _position(found: FoundLetter) -> tuple[Instant, DeadLetterId]:
    return (found.letter.opened_time, found.letter.id)


def _moment(entry: AuditEntry) -> tuple[Instant, str]:
    return (entry.created_time, entry.id)
