"""PostgreSQL ledgers whose transactions misbehave as a test tells them to, and an outsider beside them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import LiteralString

import psycopg
from sqlalchemy import Connection
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from amends_coordinator.ledger.postgresql import PostgresqlDialect
from amends_coordinator.ledger.sql import SqlLedger
from tests.conformance.ledger.sagas import DEFINITION, NODE, plan_of

LEASE_S = 6.0
"""No test waits for it, and no machine is so busy that what answers at all takes longer."""

SHORT_LEASE_S = 0.6
"""For tests that wait until it is over."""


class PlantedError(Exception):
    """What a driver raises when the answer to a COMMIT gets lost."""


class FaultyDialect(PostgresqlDialect):
    """PostgreSQL, with hooks around the beginning and the end of each writing transaction.

    `begun` is called in the transaction, before anything of it; `committing` before its COMMIT is sent; `committed`
    once the server has answered it. What they raise is what the ledger meets.
    """

    def __init__(self, url: str, *, lease_s: float = LEASE_S) -> None:
        super().__init__(make_url(url).set(drivername="postgresql+psycopg"), lease_s=lease_s)
        self.begun: Callable[[Connection], None] | None = None
        self.committing: Callable[[Connection], None] | None = None
        self.committed: Callable[[Connection], None] | None = None

    def begin_write(self, connection: Connection) -> None:
        """See the protocol."""
        super().begin_write(connection)
        if self.begun is not None:
            self.begun(connection)

    def commit(self, connection: Connection) -> None:
        """See the protocol."""
        if self.committing is not None:
            self.committing(connection)
        super().commit(connection)
        if self.committed is not None:
            self.committed(connection)


def lose_answer(connection: Connection) -> None:
    """A hook: the connection breaks, and with it the answer."""
    raise OperationalError("COMMIT", None, PlantedError("planted: committed, but the answer is lost"))


def times(count: int, hook: Callable[[Connection], None]) -> Callable[[Connection], None]:
    """A hook that does nothing any more once it was called so often."""
    left = [count]

    def limited(connection: Connection) -> None:
        if left[0]:
            left[0] -= 1
            hook(connection)

    return limited


async def open_server(
    url: str, *, patience_s: float = 10.0, lease_s: float = LEASE_S
) -> tuple[SqlLedger, FaultyDialect]:
    """The ledger of this database, opened by `NODE`, and its dialect."""
    dialect = FaultyDialect(url, lease_s=lease_s)
    ledger = SqlLedger(dialect, patience_s=patience_s)
    await ledger.open(NODE, plans=plan_of)
    await ledger.put_definition(DEFINITION)
    return ledger, dialect


@contextmanager
def operator(url: str, statement: LiteralString) -> Generator[psycopg.Connection[tuple[object, ...]]]:
    """Somebody's session with a transaction left open after a statement."""
    with psycopg.connect(url) as connection:
        connection.execute(statement)
        yield connection
        connection.rollback()


def ask(url: str, statement: LiteralString, *values: object) -> list[tuple[object, ...]]:
    """What plain SQL shows or does, asked by an outsider in a transaction of its own."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement, values)
        return cursor.fetchall() if cursor.description else []
