"""The part of the SQL adapter that people need: `ports.repairs` on the adapter's own writer and readers."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from amends_coordinator.core.states import DeadLetterReason
from amends_coordinator.core.text import clean_text
from amends_coordinator.ledger import dead_letters, verbs
from amends_coordinator.ledger.verbs import SagaLockedError
from amends_coordinator.ports.ledger import LedgerUnavailableError, SupersededError, WriteRefusedError
from amends_coordinator.ports.repairs import AbortAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlalchemy import Connection

    from amends_coordinator.core.ids import DeadLetterId, Instant, SagaId
    from amends_coordinator.core.saga import Failure
    from amends_coordinator.ledger.dialect import SqlDialect
    from amends_coordinator.ledger.pool import ReadPool
    from amends_coordinator.ledger.writer import Writer
    from amends_coordinator.ports.ledger import StoredSaga, UnreadableSagaError, Write
    from amends_coordinator.ports.repairs import (
        AuditEntry,
        AuditPage,
        FoundLetter,
        LetterFilter,
        LetterGroup,
        LetterPage,
        LettersOpened,
        NodeRow,
    )

T = TypeVar("T")

TOLD_AT_ONCE = 100
"""Sagas that get a dead letter in one transaction at most."""

LOCKED_PAUSE_S = 0.05
"""How long a write whose row somebody keeps locked waits before it is tried again, in seconds."""


class Access(Protocol):
    """What an opened ledger works with."""

    writer: Writer
    pool: ReadPool


class _Opening:
    """Opens dead letters as a task of the writer. That may run more than once: one that it opened before the answer to
    a commit was lost is its own, too.
    """

    def __init__(self, put: Callable[[Connection], Iterable[DeadLetterId | None]]) -> None:
        self._put = put
        self.opened: set[DeadLetterId] = set()

    def __call__(self, connection: Connection) -> None:
        self.opened.update(letter_id for letter_id in self._put(connection) if letter_id is not None)


class SqlRepairs(ABC):
    """See the module."""

    _dialect: SqlDialect
    _patience_s: float
    _letters_opened: LettersOpened | None

    @abstractmethod
    def _opened(self) -> Access:
        """The access; `LedgerUnavailableError` if the ledger isn't open."""

    @abstractmethod
    async def load(self, saga_id: SagaId) -> StoredSaga | None:
        """See the port."""

    async def append_verb(self, write: Write, audit: AuditEntry) -> int:
        """See the port."""
        saga_id = write.saga.id
        version = await self._patiently(
            saga_id, lambda connection: verbs.append_verb(connection, self._dialect, write, audit)
        )
        if version is not None:
            return version
        stored = await self.load(saga_id)
        if stored is None:
            raise WriteRefusedError(f"saga {saga_id} was not changed: the ledger has no saga with this id")
        raise SupersededError(stored)

    async def request_abort(self, saga_id: SagaId, *, failure: Failure, audit: AuditEntry) -> AbortAnswer | None:
        """See the port."""
        accepted = await self._patiently(
            saga_id, lambda connection: verbs.request_abort(connection, saga_id, failure, audit)
        )
        stored = None if accepted is None else await self.load(saga_id)
        return None if accepted is None or stored is None else AbortAnswer(accepted=accepted, stored=stored)

    async def put_dead_letter(
        self, saga_id: SagaId, *, reason: DeadLetterReason, last_error: str, now: Instant
    ) -> DeadLetterId | None:
        """See the port."""
        put = partial(verbs.put_dead_letter, saga_id=saga_id, reason=reason, last_error=last_error, now=now)
        opening = _Opening(lambda connection: [put(connection)])
        await self._patiently(saga_id, opening)
        self._tell_opened(reason, opening.opened)
        return next(iter(opening.opened), None)

    async def tell_unreadable(self, errors: Mapping[SagaId, UnreadableSagaError], now: Instant) -> None:
        """Open a dead letter for each of these sagas, a slice in a transaction; the next claim does it for one whose
        row is locked just now.
        """
        told = [(saga_id, clean_text(str(error))) for saga_id, error in errors.items()]
        for start in range(0, len(told), TOLD_AT_ONCE):
            part = dict(told[start : start + TOLD_AT_ONCE])
            put = partial(verbs.put_dead_letters, errors=part, reason=DeadLetterReason.UNREADABLE, now=now)
            opening = _Opening(put)
            await self._opened().writer.run(opening)
            self._tell_opened(DeadLetterReason.UNREADABLE, opening.opened)

    async def load_dead_letter(self, letter_id: DeadLetterId) -> FoundLetter | None:
        """See the port."""
        return await self._opened().pool.run(lambda connection: dead_letters.find(connection, letter_id))

    async def list_dead_letters(
        self, wanted: LetterFilter, *, limit: int, after: tuple[Instant, DeadLetterId] | None
    ) -> LetterPage:
        """See the port."""
        return await self._opened().pool.run(
            lambda connection: dead_letters.page(connection, wanted, limit=limit, after=after)
        )

    async def group_dead_letters(self, wanted: LetterFilter) -> Sequence[LetterGroup]:
        """See the port."""
        return await self._opened().pool.run(lambda connection: dead_letters.groups(connection, wanted))

    async def list_audit_entries(
        self, saga_id: SagaId | None, *, limit: int, before: tuple[Instant, str] | None
    ) -> AuditPage:
        """See the port."""
        return await self._opened().pool.run(
            lambda connection: dead_letters.audit_page(connection, saga_id, limit=limit, before=before)
        )

    async def list_nodes(self) -> Sequence[NodeRow]:
        """See the port."""
        return await self._opened().pool.run(dead_letters.nodes)

    def _tell_opened(self, reason: DeadLetterReason, opened: set[DeadLetterId]) -> None:
        if opened and self._letters_opened is not None:
            self._letters_opened(reason, len(opened))

    async def _patiently(self, saga_id: SagaId, task: Callable[[Connection], T]) -> T:
        """Run a task of the writer; one whose row somebody keeps locked is tried again, and others go on meanwhile."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._patience_s
        while True:
            try:
                return await self._opened().writer.run(task)
            except SagaLockedError as error:
                if loop.time() >= end_s:
                    raise LedgerUnavailableError(
                        f"saga {saga_id} can't be changed: another session of the database keeps its row locked; "
                        "end that session's transaction, or try again"
                    ) from error
            await asyncio.sleep(LOCKED_PAUSE_S)
