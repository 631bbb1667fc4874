"""SQLite as a dialect of the ledger: one file, one writer at a time, and a lock file beside it."""

from __future__ import annotations

import os
import sqlite3
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import create_engine, event
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, InterfaceError, NotSupportedError, ProgrammingError
from sqlalchemy.pool import NullPool, QueuePool

from amends_coordinator.ledger import direct
from amends_coordinator.ledger.dialect import Fault
from amends_coordinator.ledger.instants import instant_to_text
from amends_coordinator.ledger.lock import FileLock
from amends_coordinator.ledger.row_by_row import RowByRow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection, Engine, FromClause, Insert, Table
    from sqlalchemy.engine import URL, Dialect

    from amends_coordinator.core.ids import Instant
    from amends_coordinator.ledger.dialect import Lock, ManyRows

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


_TEXT = partial(str, encoding="utf-8", errors="surrogateescape")
"""Makes a text of its bytes. SQLite keeps whatever is put into a column, and by itself Python ends a whole question at
bytes that are no UTF-8: one such value would keep the sagas of everybody else from being claimed.
"""


class _Compiler(SQLiteCompiler):
    """Lets a statement name the index that it is to be answered by."""

    def get_from_hint_text(self, table: FromClause, text: str | None) -> str | None:
        """SQLAlchemy leaves hints out for SQLite, which has one: INDEXED BY."""
        return text


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

    @property
    def noun(self) -> str:
        """See the protocol."""
        return "file"

    @property
    def quarantine_s(self) -> float:
        """None: the operating system takes the lock from a dead process, and from no other."""
        return 0.0

    @property
    def answer_bound_s(self) -> float:
        """None: what takes long works, and what waits for a lock ends by itself."""
        return float("inf")

    def cutter(self, connection: Connection) -> Callable[[], None]:
        """Nothing leads anywhere."""
        del connection
        return lambda: None

    @property
    def is_cheap_by_column(self) -> bool:
        """An index is touched if one of its columns is among those written, and there are many."""
        return True

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

    def unsuitable(self, connection: Connection) -> str | None:
        """Every SQLite file is as good as another."""
        del connection
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

    def migration_engine(self) -> Engine:
        """See the protocol."""
        return self.writer_engine()

    def reader_engine(self, connections: int) -> Engine:
        """See the protocol."""
        engine = create_engine(
            self._url, poolclass=QueuePool, pool_size=connections, max_overflow=0, hide_parameters=True
        )
        engine.dialect.statement_compiler = _Compiler
        event.listen(engine, "connect", self._prepare_reader)
        return engine

    def begin_write(self, connection: Connection) -> None:
        """Take the write lock at once: a transaction that asks for it later can be refused in its middle."""
        direct.execute(connection, "BEGIN IMMEDIATE")

    def begin_read(self, connection: Connection) -> None:
        """See the protocol."""
        connection.exec_driver_sql("BEGIN")

    def commit(self, connection: Connection) -> None:
        """See the protocol."""
        direct.commit(connection)

    def roll_back(self, connection: Connection) -> None:
        """See the protocol."""
        direct.roll_back(connection)

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

    def wait_briefly(self, connection: Connection) -> None:
        """There are no row locks to wait for."""

    def many_rows(self, compiler: Dialect) -> ManyRows:
        """One execution per row: there is no round trip that it could save."""
        return RowByRow(self, compiler)

    def judge(self, error: DBAPIError) -> Fault:
        """See the protocol."""
        refused = (DataError, IntegrityError, InterfaceError, NotSupportedError, ProgrammingError)
        return Fault.DATA if isinstance(error, refused) else Fault.UNAVAILABLE

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
        connection.execute("PRAGMA cache_size = -16384")  # a list walks through indexes of big files again and again

    def _prepare(self, connection: sqlite3.Connection) -> None:
        direct.know_plain_values()
        connection.text_factory = _TEXT
        connection.isolation_level = None  # transactions begin and end where this module says so
        connection.execute(f"PRAGMA busy_timeout = {self._busy_timeout_ms}")
        connection.execute("PRAGMA foreign_keys = ON")
