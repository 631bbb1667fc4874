"""What the card provider writes down: a SQLite file of its own, in which everything it did survives its death."""

from __future__ import annotations

import sqlite3
import threading
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

STANDING = "standing"
VOIDED = "voided"
CAPTURED = "captured"

TABLES = """
CREATE TABLE IF NOT EXISTS authorization (
    authorization_id TEXT PRIMARY KEY,
    idempotency_key TEXT NOT NULL UNIQUE,  -- that made it
    customer_id TEXT NOT NULL,             -- whose card
    minor_units INTEGER NOT NULL,          -- how much, in the smallest unit
    currency_code TEXT NOT NULL,           -- ISO 4217
    statement_text TEXT NOT NULL,          -- what the customer reads
    reference TEXT NOT NULL,               -- the merchant's own number; the shop gives its saga's id
    state TEXT NOT NULL                    -- standing, voided or captured
);
CREATE TABLE IF NOT EXISTS charge (
    charge_id TEXT PRIMARY KEY,
    authorization_id TEXT NOT NULL UNIQUE REFERENCES authorization,
    reference TEXT NOT NULL                -- the merchant's own number
);
CREATE TABLE IF NOT EXISTS refund (
    refund_id TEXT PRIMARY KEY,
    charge_id TEXT NOT NULL UNIQUE REFERENCES charge,
    reference TEXT NOT NULL                -- the merchant's own number
);
CREATE TABLE IF NOT EXISTS answer (
    idempotency_key TEXT PRIMARY KEY,
    request_hash BLOB,                     -- SHA-256 of what was asked; NULL: sealed, whatever is asked
    status INTEGER NOT NULL,               -- the HTTP status that was answered
    body TEXT NOT NULL,                    -- the JSON that was answered
    effect_made INTEGER NOT NULL           -- whether anything was set aside, given back or taken for it
);
"""


class Books:
    """The tables, one transaction at a time.

    Args:
        file: where they are kept; ":memory:" keeps them for as long as the object lives.
    """

    def __init__(self, file: Path | str) -> None:
        self._lock = threading.Lock()
        # Any thread may use it, one at a time; `isolation_level` None leaves BEGIN and COMMIT to `transaction`.
        self._connection = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._connection.executescript(TABLES)

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """Everything that is done in the block, or, where it raises, nothing."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._connection.close()


def new_id(prefix: str) -> str:
    """A fresh id such as `auth-9f3a12cd`; never made of the key, so that work done twice can be seen."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"
