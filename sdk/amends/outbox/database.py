"""Carries statements out in the participant's database, whatever kind of sessions it has."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from amends.outbox.writing import check_database

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

Sessions: TypeAlias = "sessionmaker[Any] | async_sessionmaker[Any]"  # Any: whatever class of session they make


class Database:
    """Transactions of one relay; plain sessions are used in a thread of its own.

    Args:
        sessions: of the participant's database.

    Raises:
        OutboxUseError: it is none that an outbox can be in.
    """

    def __init__(self, sessions: Sessions) -> None:
        session = sessions()  # connects when it is first used, and it is not
        check_database(session.sync_session if isinstance(session, AsyncSession) else session)
        self._sessions = sessions
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="amends-outbox")

    @property
    def threaded(self) -> bool:
        """Whether its sessions are plain ones, which belong to no event loop."""
        return isinstance(self._sessions, sessionmaker)

    async def run(self, work: Callable[[Session], T]) -> T:
        """One transaction; what the database raises is passed on."""
        if isinstance(self._sessions, async_sessionmaker):
            async with self._sessions.begin() as session:
                result: T = await session.run_sync(work)
                return result
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run_here, self._sessions, work)

    def close(self) -> None:
        """End the thread, if there is one; what it is doing is done first."""
        self._thread.shutdown()

    @staticmethod
    def _run_here(sessions: sessionmaker[Any], work: Callable[[Session], T]) -> T:  # Any: as above
        with sessions.begin() as session:
            return work(session)
