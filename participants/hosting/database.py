"""Opens a service's SQLite database: its own tables, the barrier's and the journal's, with durable commits."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Engine, MetaData, create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from amends import barrier
from hosting import journal

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.pool import ConnectionPoolEntry

BUSY_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Database:
    """An open database. Services are given sessions; the engine is for what is done beside their calls."""

    engine: Engine
    async_engine: AsyncEngine

    @property
    def sessions(self) -> async_sessionmaker[AsyncSession]:
        """For `async def` handlers."""
        return async_sessionmaker(self.async_engine)

    @property
    def plain_sessions(self) -> sessionmaker[Session]:
        """For `def` handlers."""
        return sessionmaker(self.engine)

    async def close(self) -> None:
        """Closes all connections."""
        await self.async_engine.dispose()
        self.engine.dispose()


def open_database(path: Path, tables: MetaData) -> Database:
    """The database in the file at `path`, with the tables made if they are not there yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    waiting = {"timeout": BUSY_TIMEOUT_S}
    database = Database(
        create_engine(f"sqlite:///{path}", connect_args=waiting),
        create_async_engine(f"sqlite+aiosqlite:///{path}", connect_args=waiting),
    )
    for engine in (database.engine, database.async_engine.sync_engine):
        event.listen(engine, "connect", _prepare_connection)
        journal.watch_changes(engine, tables)
    for each in (tables, barrier.TABLES, journal.TABLES):
        each.create_all(database.engine)
    return database


def _prepare_connection(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    for setting in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        cursor.execute(f"PRAGMA {setting}")
    cursor.close()


def new_id(prefix: str) -> str:
    """A fresh id such as `auth-9f3a12cd`.

    It is never derived from the idempotency key: work that is done twice must leave two rows, so that it can be seen.
    """
    return f"{prefix}-{uuid.uuid4().hex[:12]}"
