"""Which adapter a ledger URL means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from amends_coordinator.ledger.memory import MemoryLedger
from amends_coordinator.ports.ledger import LedgerError

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from amends_coordinator.ports.ledger import Ledger

MEMORY_URL = "memory:"


def open_ledger(url: str) -> Ledger:
    """The adapter for `memory:` or `sqlite:///relative/path` or `sqlite:////absolute/path`; it isn't opened yet.

    Raises:
        LedgerError: the URL names no adapter. The message never contains a password.
    """
    if url == MEMORY_URL:
        return MemoryLedger()
    from amends_coordinator.ledger.sql import SqlLedger
    from amends_coordinator.ledger.sqlite import SqliteDialect

    return SqlLedger(SqliteDialect(sqlite_url(url)))


def sqlite_url(url: str) -> URL:
    """The parsed URL of a SQLite file.

    Raises:
        LedgerError: it is not one.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise LedgerError("the ledger's URL can't be read: write memory: or sqlite:///path") from None
    if parsed.get_backend_name() != "sqlite":
        raise LedgerError(f"there is no ledger adapter for {parsed.drivername}: write memory: or sqlite:///path")
    if parsed.database in (None, "", ":memory:"):
        raise LedgerError("the ledger's URL names no file: write sqlite:///path, or memory: for one that is not kept")
    return parsed
