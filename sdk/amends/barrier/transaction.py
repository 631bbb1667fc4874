"""`barrier.transaction`: a handler's work, its guard row and its response in one transaction of its own database.

    async with barrier.transaction(sessions) as session:     # async_sessionmaker, in an `async def` handler
    with barrier.transaction(sessions) as session:           # sessionmaker, in a plain `def` handler

The block begins by claiming the row of the call's key; a key that is known is answered from its row, and the block is
never entered. Leaving the block commits nothing: the server commits after the handler has returned, so that the
response is part of the transaction, and rolls back after everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from amends.barrier.calls import guarded_call
from amends.barrier.course import Course
from amends.barrier.errors import Unclear
from amends.barrier.waiting import in_time
from amends.participant import wire
from amends.participant.guards import Decided
from amends.participant.refusals import Rejected, TryLater

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from types import TracebackType

    from google.protobuf.message import Message

    from amends.participant.guards import Verdict

AsyncSessionT = TypeVar("AsyncSessionT", bound=AsyncSession)
SessionT = TypeVar("SessionT", bound=Session)

NAME = "barrier.transaction"


@overload
def transaction(sessions: async_sessionmaker[AsyncSessionT]) -> AbstractAsyncContextManager[AsyncSessionT]: ...
@overload
def transaction(sessions: sessionmaker[SessionT]) -> AbstractContextManager[SessionT]: ...
def transaction(
    sessions: async_sessionmaker[Any] | sessionmaker[Any],  # Any: the overloads say of what
) -> AbstractAsyncContextManager[Any] | AbstractContextManager[Any]:
    """Guard the work of an action or a compensation: once per key, whatever arrives how often and in which order.

    The block's session is an ordinary one, whose transaction the barrier ends: `commit()` in the block raises,
    savepoints are fine. Raise `Rejected` to refuse, inside the block or after it: the work is rolled back, and for
    compensatable and pivot steps the refusal is recorded and repeated for good. Every other exception rolls back, and
    the coordinator calls again.

    Args:
        sessions: of the database that holds the work, with the tables in `TABLES`: PostgreSQL or SQLite, READ
            COMMITTED. SQLite in memory has one connection for all, so there only one call at a time is guarded.

    Raises (on entering the block):
        BarrierUseError: it can't be used here; the text says why.
        TryLater: the database can't be reached, or its pool is exhausted: nothing was begun.
    """
    return AsyncTransaction(sessions) if isinstance(sessions, async_sessionmaker) else SyncTransaction(sessions)


class AsyncTransaction(Generic[AsyncSessionT]):
    """The block and the guard of an `async def` handler."""

    def __init__(self, sessions: async_sessionmaker[AsyncSessionT]) -> None:
        self._sessions = sessions
        self._session = sessions()  # connects when it is first used
        self.course: Course

    async def __aenter__(self) -> AsyncSessionT:
        call = guarded_call(self, NAME, threaded=False)
        self.course = Course(call)
        try:
            await in_time(call, self._session, self.course.enter)
        except Unclear as problem:
            self.course.verdict = wire.key_in_use(str(problem))
        if self.course.verdict is not None:
            await self._session.close()
            raise Decided
        return self._session

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.course.left_by = error

    @property
    def plain_session(self) -> Session:
        """The block's session, below the asynchronous one."""
        return self._session.sync_session

    @property
    def verdict(self) -> Verdict | None:
        """See `guards.Guard`."""
        return self.course.verdict

    async def returned(self, response: Message, *, abort_reason: bytes | None) -> Verdict:
        """See `guards.Guard`."""
        if self.course.refused is not None:
            return await self._refused(self.course.refused)
        try:
            return await self._session.run_sync(self.course.finish, response, abort_reason)
        finally:
            await self._session.close()

    async def raised(self, fault: BaseException) -> Verdict | None:
        """See `guards.Guard`."""
        if isinstance(fault, Rejected):
            return await self._refused(fault)
        await self._session.close()
        return None

    async def _refused(self, refusal: Rejected | TryLater) -> Verdict:
        await self._session.close()
        if isinstance(refusal, TryLater):
            return wire.not_now(refusal)
        async with self._sessions() as session:
            return await session.run_sync(self.course.record, refusal)


class SyncTransaction(Generic[SessionT]):
    """The block and the guard of a plain `def` handler."""

    def __init__(self, sessions: sessionmaker[SessionT]) -> None:
        self._sessions = sessions
        self._session = sessions()  # connects when it is first used
        self.course: Course

    def __enter__(self) -> SessionT:
        self.course = Course(guarded_call(self, NAME, threaded=True))
        if self.course.enter(self._session) is not None:
            self._session.close()
            raise Decided
        return self._session

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.course.left_by = error

    @property
    def plain_session(self) -> Session:
        """The block's session."""
        return self._session

    @property
    def verdict(self) -> Verdict | None:
        """See `guards.SyncGuard`."""
        return self.course.verdict

    def returned(self, response: Message, *, abort_reason: bytes | None) -> Verdict:
        """See `guards.SyncGuard`."""
        if self.course.refused is not None:
            return self._refused(self.course.refused)
        try:
            return self.course.finish(self._session, response, abort_reason)
        finally:
            self._session.close()

    def raised(self, fault: BaseException) -> Verdict | None:
        """See `guards.SyncGuard`."""
        if isinstance(fault, Rejected):
            return self._refused(fault)
        self._session.close()
        return None

    def _refused(self, refusal: Rejected | TryLater) -> Verdict:
        self._session.close()
        if isinstance(refusal, TryLater):
            return wire.not_now(refusal)
        with self._sessions() as session:
            return self.course.record(session, refusal)
