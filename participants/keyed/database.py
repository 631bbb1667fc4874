"""Opens a service's SQLite database: write-ahead log, durable commits, and transactions that take the lock at once."""

from __future__ import annotations

import sqlite3
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, MetaData, create_engine, event

if TYPE_CHECKING:
    from sqlalchemy.pool import ConnectionPoolEntry

BUSY_TIMEOUT_S = 10.0


def open_database(path: Path, tables: MetaData) -> Engine:
    """An engine on the file at `path`, with the tables made if they are not there yet.

    Python's driver begins transactions late and only for writes. Two calls with one key must not both read "not
    done yet", so the driver's own handling is off and every transaction begins by taking the write lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": BUSY_TIMEOUT_S})
    event.listen(engine, "connect", _prepare_connection)
    event.listen(engine, "begin", _begin_immediately)
    tables.create_all(engine)
    return engine


def _prepare_connection(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_immediately(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def new_id(prefix: str) -> str:
    """A fresh id such as `auth-9f3a12cd`.

    It is never derived from the idempotency key: work that is done twice must leave two rows, so that it can be seen.
    """
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def utc_now() -> str:
    """This instant as ISO 8601 text in UTC; it sorts as text the way it sorts in time."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
