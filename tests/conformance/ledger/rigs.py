"""Adapters under test: how one storage is opened again and again, and how an incarnation of it is shut out or dies."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import LiteralString, Protocol

import psycopg
from sqlalchemy.engine import make_url

from amends_coordinator.core.definition import StoredDefinition
from amends_coordinator.core.ids import DefinitionVersion, NodeId, SagaId
from amends_coordinator.core.plan import Plan
from amends_coordinator.ledger import open_ledger
from amends_coordinator.ledger.memory import MemoryLedger, MemoryStore
from amends_coordinator.ledger.migrate import upgrade
from amends_coordinator.ledger.sql import SqlLedger
from amends_coordinator.ledger.sqlite import SqliteDialect
from amends_coordinator.ports.ledger import Ledger
from tests.conformance.ledger.sagas import DEFINITION, NODE, plan_of


class Rig(Protocol):
    """One storage."""

    def ledger(self) -> Ledger:
        """A new adapter on the storage, not opened yet."""
        ...

    async def crash(self, ledger: Ledger) -> None:
        """Let an opened adapter go without releasing anything."""
        ...

    def fence(self, node: NodeId) -> None:
        """Shut an incarnation out, from outside."""
        ...

    def make_unreadable(self, saga_id: str) -> None:
        """Change a stored saga so that this release can't read it."""
        ...


class MemoryRig:
    """The in-memory adapter on one store."""

    def __init__(self) -> None:
        self._store = MemoryStore()

    def ledger(self) -> Ledger:
        """See the protocol."""
        return MemoryLedger(self._store)

    async def crash(self, ledger: Ledger) -> None:
        """See the protocol."""
        assert isinstance(ledger, MemoryLedger)
        ledger.abandon()

    def fence(self, node: NodeId) -> None:
        """See the protocol."""
        self._store.fence(node)

    def make_unreadable(self, saga_id: str) -> None:
        """See the protocol."""
        lose_definition_of(self._store, SagaId(saga_id))


def lose_definition_of(store: MemoryStore, saga_id: SagaId) -> None:
    """Damage a saga: let it name a definition that isn't there."""
    record = store.records[saga_id]
    saga = record.stored.saga
    lost = replace(saga.plan, version=DefinitionVersion("lost"))
    record.stored = replace(record.stored, saga=replace(saga, plan=lost))


class SqliteRig:
    """The SQL adapter on one SQLite file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger.sqlite3"
        self.path.write_bytes(empty_ledger())

    def ledger(self) -> Ledger:
        """See the protocol."""
        return SqlLedger(SqliteDialect(make_url(f"sqlite:///{self.path}")))

    async def crash(self, ledger: Ledger) -> None:
        """See the protocol."""
        assert isinstance(ledger, SqlLedger)
        await ledger.abandon()

    def fence(self, node: NodeId) -> None:
        """See the protocol."""
        self._change("UPDATE node SET fenced = 1 WHERE node_id = ?", node)

    def make_unreadable(self, saga_id: str) -> None:
        """See the protocol."""
        self._change("UPDATE intent SET state = 'SULKING' WHERE saga_id = ?", saga_id)

    def _change(self, statement: str, value: str) -> None:
        with closing(sqlite3.connect(self.path, timeout=10)) as connection, connection:
            assert connection.execute(statement, (value,)).rowcount


class PostgresRig:
    """The SQL adapter on one database of a PostgreSQL; who comes after a crash has a lease short enough to wait for."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._lease_s = LEASE_S

    def ledger(self) -> Ledger:
        """See the protocol."""
        return open_ledger(self.url, lease_s=self._lease_s)

    async def crash(self, ledger: Ledger) -> None:
        """See the protocol."""
        assert isinstance(ledger, SqlLedger)
        await ledger.abandon()
        self._lease_s = SHORT_LEASE_S

    def fence(self, node: NodeId) -> None:
        """See the protocol."""
        self._change("UPDATE node SET fenced = true WHERE node_id = %s", node)

    def make_unreadable(self, saga_id: str) -> None:
        """See the protocol."""
        self._change("UPDATE intent SET state = 'SULKING' WHERE saga_id = %s", saga_id)

    def _change(self, statement: LiteralString, value: str) -> None:
        with psycopg.connect(self.url) as connection:
            assert connection.execute(statement, (value,)).rowcount


@cache
def empty_ledger() -> bytes:
    """A SQLite file with an empty ledger: made once per process, because that takes longer than most tests."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.sqlite3"
        upgrade(f"sqlite:///{path}")
        return path.read_bytes()


LEASE_S = 6.0
"""Half of it is what a transaction on PostgreSQL may stand still for: no machine is so busy."""

SHORT_LEASE_S = 1.0
"""On PostgreSQL a crashed incarnation is fenced only after a whole lease of the next one."""


async def opened(rig: Rig, node: NodeId = NODE, *, plans: Callable[[StoredDefinition], Plan] = plan_of) -> Ledger:
    """An adapter opened for an incarnation, with the definition that the tests' sagas run."""
    ledger = rig.ledger()
    await ledger.open(node, plans=plans)
    await ledger.put_definition(DEFINITION)
    return ledger
