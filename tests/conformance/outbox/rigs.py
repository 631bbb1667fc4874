"""A participant's database as the outbox's tests use it, the same for both databases and both kinds of session."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar

from google.protobuf.wrappers_pb2 import StringValue
from sqlalchemy import Engine, create_engine, select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from amends import outbox
from amends.outbox.tables import OUTBOX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

Sessions: TypeAlias = "sessionmaker[Session] | async_sessionmaker[AsyncSession]"

KINDS = ("sqlite-sync", "sqlite-async", "postgresql-sync", "postgresql-async")


class Rig:
    """A database with the outbox's tables in it.

    Args:
        url: the database, as SQLAlchemy names it.
        threaded: whether its sessions are plain ones, for threads.
    """

    def __init__(self, url: str, *, threaded: bool) -> None:
        self.url = url
        self.sync_engine: Engine = create_engine(url)
        self.async_engine: AsyncEngine = create_async_engine(url.replace("sqlite:", "sqlite+aiosqlite:"))
        self.sync_sessions = sessionmaker(self.sync_engine)
        self.async_sessions = async_sessionmaker(self.async_engine)
        self.sessions: Sessions = self.sync_sessions if threaded else self.async_sessions
        outbox.TABLES.create_all(self.sync_engine)

    async def run(self, work: Callable[[Session | AsyncSession], T]) -> T:
        """Do something in a transaction, through the kind of session that this is about."""
        if isinstance(self.sessions, sessionmaker):
            with self.sessions.begin() as session:
                return work(session)
        async with self.sessions.begin() as session:
            return work(session)

    async def publish(self, key: str, *texts: str, topic: str = "orders") -> None:
        """Publish texts in one transaction."""
        await self.run(lambda session: [say(session, key, text, topic=topic) for text in texts])

    def written(self) -> list[tuple[str, str]]:
        """Keys and texts of the events that wait in the outbox, in the order of their numbers."""
        with self.sync_sessions() as session:
            rows = session.execute(select(OUTBOX.c.key, OUTBOX.c.payload).order_by(OUTBOX.c.id))
            return [(key, heard(payload)) for key, payload in rows]

    async def close(self) -> None:
        """Let go of the database."""
        self.sync_engine.dispose()
        await self.async_engine.dispose()


def say(session: Session | AsyncSession, key: str, text: str, *, topic: str = "orders") -> str:
    """Publish a text."""
    return outbox.publish(topic, key, StringValue(value=text), session=session)


def heard(payload: bytes) -> str:
    """The text of a payload."""
    return StringValue.FromString(payload).value


def texts(events: Iterable[outbox.Event]) -> list[str]:
    """The texts of events."""
    return [heard(event.payload) for event in events]
