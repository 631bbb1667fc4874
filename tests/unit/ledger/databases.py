"""SQLite ledgers whose connections misbehave as a test tells them to."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlalchemy.engine import make_url

from amends_coordinator.ledger.sql import SqlLedger
from amends_coordinator.ledger.sqlite import SqliteDialect
from tests.conformance.ledger.rigs import empty_ledger
from tests.conformance.ledger.sagas import DEFINITION, NODE, plan_of


def make_file(folder: Path) -> Path:
    """An empty ledger in a file."""
    path = folder / "ledger.sqlite3"
    path.write_bytes(empty_ledger())
    return path


def dialect(path: Path, **connect_arguments: object) -> SqliteDialect:
    """SQLite in this file, with little patience for other writers."""
    return SqliteDialect(make_url(f"sqlite:///{path}"), busy_timeout_ms=50, connect_arguments=connect_arguments)


async def open_file(path: Path, *, patience_s: float = 10.0, **connect_arguments: object) -> SqlLedger:
    """The ledger of this file, opened by `NODE`."""
    ledger = SqlLedger(dialect(path, **connect_arguments), patience_s=patience_s)
    await ledger.open(NODE, plans=plan_of)
    await ledger.put_definition(DEFINITION)
    return ledger


class Fault:
    """How the next commits fail. `after`: once they are done, so that only the answer is lost; then `then_before`
    becomes `before`, as nobody outside is quick enough to plant it between two of them.
    """

    def __init__(self) -> None:
        self.before = 0
        self.after = 0
        self.then_before = 0
        self.commits = 0


def faulty(fault: Fault) -> type[sqlite3.Connection]:
    """Connections whose commits fail as `fault` says."""

    class FaultyConnection(sqlite3.Connection):
        def commit(self) -> None:
            if fault.before:
                fault.before -= 1
                raise sqlite3.OperationalError("planted: not committed")
            super().commit()
            fault.commits += 1
            if fault.after:
                fault.after -= 1
                if not fault.after:
                    fault.before, fault.then_before = fault.then_before, 0
                raise sqlite3.OperationalError("planted: committed, but the answer is lost")

    return FaultyConnection


def query(path: Path, statement: str, *values: object) -> list[tuple[object, ...]]:
    """What plain SQL shows, asked by an outsider."""
    connection = sqlite3.connect(path, timeout=10)
    try:
        return connection.execute(statement, values).fetchall()
    finally:
        connection.close()
