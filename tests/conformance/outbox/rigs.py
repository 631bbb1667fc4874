"""A participant's database as the outbox's tests use it, the same for both databases and both kinds of session."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from google.protobuf.wrappers_pb2 import StringValue
from sqlalchemy import Engine, Executable, create_engine, event, select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from amends import outbox
from amends.outbox.tables import OUTBOX
from tests.conformance.combinations import combinations
from tests.engines import closed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

Sessions: TypeAlias = "sessionmaker[Session] | async_sessionmaker[AsyncSession]"

KINDS = combinations(
    ("sqlite-sync", "sqlite-async", "postgresql-sync", "postgresql-async"), short=("sqlite-sync", "postgresql-async")
)


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
        self.statements: list[str] = []
        outbox.TABLES.create_all(self.sync_engine)
        for engine in (self.sync_engine, self.async_engine.sync_engine):
            event.listen(engine, "before_cursor_execute", self._seen)

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

    def seen(self, beginning: str) -> int:
        """How many statements began so until now."""
        return sum(statement.startswith(beginning) for statement in self.statements)

    def refusals(self) -> int:
        """How often events that still wait were refused."""
        with self.sync_sessions() as session:
            return sum(session.scalars(select(OUTBOX.c.attempt_count)))

    async def alter(self, *statements: Executable) -> None:
        """Change the database behind everybody's back, in a thread, because on SQLite it may have to wait."""
        await asyncio.to_thread(self._alter, statements)

    def publish_here(self, key: str, *texts: str) -> None:
        """Publish texts in one transaction of a plain session, in whatever thread this is."""
        with self.sync_sessions.begin() as session:
            for text in texts:
                say(session, key, text)

    def _alter(self, statements: Iterable[Executable]) -> None:
        with self.sync_engine.begin() as connection:
            for statement in statements:
                connection.execute(statement)

    def _seen(self, *arguments: object) -> None:
        self.statements.append(str(arguments[2]))

    async def close(self) -> None:
        """Let go of the database."""
        await closed(self.sync_engine)
        await closed(self.async_engine)


def say(session: Session | AsyncSession, key: str, text: str, *, topic: str = "orders") -> str:
    """Publish a text."""
    return outbox.publish(topic, key, StringValue(value=text), session=session)


def heard(payload: bytes) -> str:
    """The text of a payload."""
    return StringValue.FromString(payload).value


def texts(events: Iterable[outbox.Event], key: str | None = None) -> list[str]:
    """The texts of events, or of those of one key."""
    return [heard(each.payload) for each in events if key in {None, each.key}]


QUICK = outbox.RelayOptions(
    poll_interval=timedelta(milliseconds=20),
    initial_delay=timedelta(milliseconds=10),
    maximum_delay=timedelta(milliseconds=40),
)
"""Waits for little, so that tests do, too."""
