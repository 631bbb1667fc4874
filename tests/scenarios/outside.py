"""Other people's processes that use the ledger's file."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


@contextmanager
def writes_blocked(ledger: Path) -> Generator[None]:
    """Nobody can commit to the ledger meanwhile: an outsider holds SQLite's write lock."""
    with closing(sqlite3.connect(ledger, isolation_level=None, timeout=20)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")


@dataclass(slots=True)
class Writes:
    """How many writes an outsider has made."""

    count: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)


@contextmanager
def writing_steadily(ledger: Path, *, every_s: float) -> Generator[Writes]:
    """An outsider writes to the file again and again, and holds the lock for a while each time."""
    writes = Writes()
    thread = threading.Thread(target=_write, args=(ledger, every_s, writes))
    thread.start()
    try:
        yield writes
    finally:
        writes.stopped.set()
        thread.join()


def _write(ledger: Path, every_s: float, writes: Writes) -> None:
    with closing(sqlite3.connect(ledger, isolation_level=None, timeout=20)) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS outsider (number INTEGER)")
        while not writes.stopped.wait(every_s):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO outsider VALUES (?)", (writes.count,))
            writes.stopped.wait(every_s / 5)
            connection.execute("COMMIT")
            writes.count += 1
