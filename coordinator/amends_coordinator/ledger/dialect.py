"""What differs between databases, and nothing else of the ledger knows: connections, transactions, errors, the lock.

Statements are SQLAlchemy Core and compile for every dialect; `FOR NO KEY UPDATE SKIP LOCKED` and `FOR SHARE` are in
them, and SQLite, where one writer has the whole file, compiles them to nothing.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sqlalchemy import create_engine, event
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, InterfaceError, NotSupportedError, ProgrammingError
from sqlalchemy.pool import NullPool, QueuePool

from amends_coordinator.ledger.instants import instant_to_text
from amends_coordinator.ledger.lock import FileLock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Engine, Insert, Table
    from sqlalchemy.engine import URL

    from amends_coordinator.core.ids import Instant


class Lock(Protocol):
    """Held by the one process that may use the ledger."""

    def acquire(self) -> None:
        """Take it. Raises LedgerLockedError."""
        ...

    def release(self) -> None:
        """Give it back; nothing happens if it isn't held."""
        ...


class SqlDialect(Protocol):
    """One kind of database at one place."""

    @property
    def place(self) -> str:
        """Where the database is, for messages; never a password."""
        ...

    def exists(self) -> bool:
        """Whether there is a database to connect to (True where only connecting can tell)."""
        ...

    def obstacle(self) -> str | None:
        """Why what is at the place can't be used as a database, where that can be seen without connecting."""
        ...

    def lock(self) -> Lock:
        """The lock of the whole ledger."""
        ...

    def writer_engine(self) -> Engine:
        """Makes the writer's connections: new ones each time, never shared."""
        ...

    def reader_engine(self, connections: int) -> Engine:
        """Keeps up to this many connections for reading."""
        ...

    def begin_write(self, connection: Connection) -> None:
        """Begin a transaction that will write."""
        ...

    def begin_read(self, connection: Connection) -> None:
        """Begin a transaction whose reads all see the same state."""
        ...

    def commit(self, connection: Connection) -> None:
        """Commit. Returns only if the database said that it is committed; any error leaves that open."""
        ...

    def insert_new(self, table: Table) -> Insert:
        """An insert that does nothing where the row exists."""
        ...

    def insert_or_update(self, table: Table, *, key: Sequence[str], changed: Sequence[str]) -> Insert:
        """An insert that, where a row has the same key, changes the named columns of it."""
        ...

    def instant(self, value: Instant | None) -> object:
        """An instant as the driver takes it, for statements that go past SQLAlchemy's types."""
        ...

    def refuses_data(self, error: DBAPIError) -> bool:
        """Whether the error is about the data of a statement, so that repeating it is useless."""
        ...

    def explain(self, error: DBAPIError) -> str:
        """Why the database can't be used, in a few words without data or secrets."""
        ...

    def is_foreign(self, error: DBAPIError) -> bool:
        """Whether the error says that what is there is no (whole) database of this kind: trying again is useless."""
        ...


_SQLITE_REASONS = {
    "SQLITE_BUSY": "another process keeps writing to the file",
    "SQLITE_CANTOPEN": "the file can't be opened",
    "SQLITE_CORRUPT": "the file is damaged",
    "SQLITE_FULL": "the disk is full",
    "SQLITE_IOERR": "reading or writing the file failed",
    "SQLITE_LOCKED": "another connection keeps the table",
    "SQLITE_NOTADB": "the file is not a SQLite database",
    "SQLITE_READONLY": "the file is not writable",
}


class SqliteDialect:
    """SQLite in a file, in WAL mode, with every commit on disk before it counts.

    Args:
        url: `sqlite:///path`.
        busy_timeout_ms: how long one statement waits for another process that writes to the file.
        connect_arguments: given to `sqlite3.connect` as they are.
    """

    def __init__(
        self, url: URL, *, busy_timeout_ms: int = 2_000, connect_arguments: Mapping[str, object] | None = None
    ) -> None:
        self._url = url
        self._busy_timeout_ms = busy_timeout_ms
        self._connect_arguments = dict(connect_arguments or {})
        self.path = Path(url.database or "")

    @property
    def place(self) -> str:
        """The file."""
        return str(self.path)

    def exists(self) -> bool:
        """Whether the file is there: connecting would make an empty one."""
        return self.path.exists()

    def obstacle(self) -> str | None:
        """See the protocol."""
        if self.path.is_dir():
            return "it is a directory, not a file"
        if self.path.exists() and not os.access(self.path, os.R_OK | os.W_OK):
            return "this process may not read and write the file"
        return None

    def lock(self) -> Lock:
        """A lock on a file beside the database."""
        return FileLock(self.path.with_name(self.path.name + ".lock"))

    def writer_engine(self) -> Engine:
        """See the protocol."""
        engine = create_engine(
            self._url, poolclass=NullPool, hide_parameters=True, connect_args=self._connect_arguments
        )
        event.listen(engine, "connect", self._prepare_writer)
        return engine

    def reader_engine(self, connections: int) -> Engine:
        """See the protocol."""
        engine = create_engine(
            self._url, poolclass=QueuePool, pool_size=connections, max_overflow=0, hide_parameters=True
        )
        event.listen(engine, "connect", self._prepare_reader)
        return engine

    def begin_write(self, connection: Connection) -> None:
        """Take the write lock at once: a transaction that asks for it later can be refused in its middle."""
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def begin_read(self, connection: Connection) -> None:
        """See the protocol."""
        connection.exec_driver_sql("BEGIN")

    def commit(self, connection: Connection) -> None:
        """See the protocol."""
        connection.commit()

    def insert_new(self, table: Table) -> Insert:
        """See the protocol."""
        return sqlite_insert(table).on_conflict_do_nothing()

    def insert_or_update(self, table: Table, *, key: Sequence[str], changed: Sequence[str]) -> Insert:
        """See the protocol."""
        statement = sqlite_insert(table)
        return statement.on_conflict_do_update(
            index_elements=list(key), set_={name: statement.excluded[name] for name in changed}
        )

    def instant(self, value: Instant | None) -> object:
        """See the protocol."""
        return None if value is None else instant_to_text(value)

    def refuses_data(self, error: DBAPIError) -> bool:
        """See the protocol."""
        return isinstance(error, (DataError, IntegrityError, InterfaceError, NotSupportedError, ProgrammingError))

    def explain(self, error: DBAPIError) -> str:
        """See the protocol."""
        name = getattr(error.orig, "sqlite_errorname", "") or ""
        known = next((reason for start, reason in _SQLITE_REASONS.items() if name.startswith(start)), None)
        return known or f"SQLite says: {error.orig}"

    def is_foreign(self, error: DBAPIError) -> bool:
        """See the protocol."""
        name = getattr(error.orig, "sqlite_errorname", "") or ""
        return name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT"))

    def _prepare_writer(self, connection: sqlite3.Connection, record: object) -> None:
        self._prepare(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cache_size = -16384")

    def _prepare_reader(self, connection: sqlite3.Connection, record: object) -> None:
        self._prepare(connection)
        connection.execute("PRAGMA query_only = ON")

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.isolation_level = None  # transactions begin and end where this module says so
        connection.execute(f"PRAGMA busy_timeout = {self._busy_timeout_ms}")
        connection.execute("PRAGMA foreign_keys = ON")
