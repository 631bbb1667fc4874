"""Which adapter a ledger URL means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from amends_coordinator.ledger.memory import MemoryLedger
from amends_coordinator.ports.ledger import LedgerError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sqlalchemy.engine import URL

    from amends_coordinator.ledger.dialect import SqlDialect
    from amends_coordinator.ports.ledger import Ledger
    from amends_coordinator.ports.repairs import LettersOpened

MEMORY_URL = "memory:"

DEFAULT_LEASE_S = 10.0

_FORMS = "memory:, sqlite:///path or postgresql://user:password@host:port/database"
_POSTGRESQL = frozenset({"postgresql", "postgres", "postgresql+psycopg"})


def open_ledger(
    url: str,
    *,
    lease_s: float = DEFAULT_LEASE_S,
    batch_written: Callable[[int, float], None] | None = None,
    letters_opened: LettersOpened | None = None,
) -> Ledger:
    """The adapter that a URL means; it isn't opened yet.

    Args:
        url: `memory:`, `sqlite:///relative/path`, `sqlite:////absolute/path`, or `postgresql://…` with whatever libpq
            takes as its query, for example `?sslmode=verify-full`.
        lease_s: how long a node that shows no sign of life keeps its rights.
        batch_written: is told, in another thread, how many decisions were committed together, and in how many seconds.
        letters_opened: is told of dead letters that aren't part of a decision: for what reason, and how many.

    Raises:
        LedgerError: the URL names no adapter. The message never contains a password.
    """
    if url == MEMORY_URL:
        return MemoryLedger(letters_opened=letters_opened)
    from amends_coordinator.ledger.sql import SqlLedger

    return SqlLedger(dialect_of(url, lease_s=lease_s), batch_written=batch_written, letters_opened=letters_opened)


def dialect_of(url: str, *, lease_s: float = DEFAULT_LEASE_S) -> SqlDialect:
    """The dialect of a SQL database.

    Raises:
        LedgerError: the URL names none. The message never contains a password.
    """
    from amends_coordinator.ledger.postgresql import PostgresqlDialect
    from amends_coordinator.ledger.sqlite import SqliteDialect

    parsed = _parsed(url)
    if parsed.drivername in _POSTGRESQL:
        return PostgresqlDialect(parsed.set(drivername="postgresql+psycopg"), lease_s=lease_s)
    if parsed.get_backend_name() != "sqlite":
        raise LedgerError(f"there is no ledger adapter for {parsed.drivername}: write {_FORMS}")
    if parsed.database in (None, "", ":memory:"):
        raise LedgerError("the ledger's URL names no file: write sqlite:///path, or memory: for one that is not kept")
    return SqliteDialect(parsed)


def sqlite_file(url: str) -> Path | None:
    """The file of a SQLite ledger; None for any other ledger.

    Raises:
        LedgerError: as `dialect_of`.
    """
    from amends_coordinator.ledger.sqlite import SqliteDialect

    dialect = None if url == MEMORY_URL else dialect_of(url)
    return dialect.path if isinstance(dialect, SqliteDialect) else None


def place_of(url: str) -> str:
    """Where the ledger of a URL is, for messages; never a password.

    Raises:
        LedgerError: as `dialect_of`.
    """
    return "memory" if url == MEMORY_URL else dialect_of(url).place


def _parsed(url: str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError):  # a port that is no number is a ValueError
        raise LedgerError(f"the ledger's URL can't be read: write {_FORMS}") from None
