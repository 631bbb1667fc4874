"""What a barrier asks of the participant's database, and what the database's errors mean to it."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import exc

from amends.barrier.errors import BarrierUseError, Unclear
from amends.barrier.statements import DIALECTS
from amends.barrier.tables import BARRIER
from amends.participant.refusals import TryLater

if TYPE_CHECKING:
    from collections.abc import Generator

    from sqlalchemy import Connection
    from sqlalchemy.orm import Session

log = logging.getLogger("amends.barrier")

UNDEFINED_TABLE = "42P01"
LOCK_NOT_AVAILABLE = "55P03"
SQLITE_BUSY = 5


def connection_of(session: Session) -> Connection:
    """The connection of a session to the database that has the barrier's tables, in a transaction.

    Raises:
        BarrierUseError: the barrier can't keep its promise there.
    """
    if not session.in_transaction():
        session.begin()  # said aloud, for sessions that don't begin by themselves
    connection = session.connection(bind_arguments={"clause": BARRIER})
    if connection.dialect.name not in DIALECTS:
        raise BarrierUseError(
            f"the barrier knows PostgreSQL and SQLite, and this session is bound to {connection.dialect.name}: keep "
            "the rules by hand there (docs/barrier.md has them)"
        )
    if _commits_by_itself(connection):
        raise BarrierUseError(
            "this session's connection is in AUTOCOMMIT, where nothing can be rolled back: give the barrier a "
            "sessionmaker whose engine has no isolation_level AUTOCOMMIT"
        )
    return connection


def commit(session: Session) -> None:
    """Commit, and after any error drop the connection.

    An error does not say whether the commit happened, and may leave the transaction open (SQLite's, where a reader was
    in the way). In the pool, its rows would be there for the next call, as if they were durable.
    """
    connection = connection_of(session)
    try:
        session.commit()
    except BaseException:
        if not connection.closed:
            connection.invalidate()
        raise


def _commits_by_itself(connection: Connection) -> bool:
    driver = connection.connection.driver_connection
    if connection.dialect.name == "postgresql":
        # Of the DBAPI's connection, since that is what SQLAlchemy sets for asyncpg too.
        return getattr(connection.connection.dbapi_connection, "autocommit", False) is True
    if getattr(driver, "in_transaction", False):
        return False  # begun by the application itself, as SQLAlchemy's page on SQLite shows
    return getattr(driver, "isolation_level", "") is None or getattr(driver, "autocommit", None) is True


@contextmanager
def entering() -> Generator[None]:
    """Says what an error means that a call meets before its body runs and before anything is committed.

    Raises:
        BarrierUseError: the tables are missing.
        Unclear: somebody else holds what the call needs.
        TryLater: the database can't be reached. So nothing was begun.
    """
    try:
        yield
    except exc.TimeoutError as problem:
        log.warning("a call was sent away, because no connection to the database became free: %s", problem)
        raise TryLater("no connection to the participant's database became free") from problem
    except exc.DBAPIError as problem:
        explained = _explained(problem)
        if explained is None:
            raise
        raise explained from problem
    except Exception as problem:
        if not _is_drivers_own(problem):
            raise
        raise _unreachable(problem) from problem


def _explained(problem: exc.DBAPIError) -> BaseException | None:
    driver = problem.orig
    sqlstate = getattr(driver, "sqlstate", None) or getattr(driver, "pgcode", None)
    if sqlstate == UNDEFINED_TABLE or "no such table: amends_barrier" in str(driver):
        return BarrierUseError(
            "this database has no table amends_barrier or amends_barrier_horizon: make them with "
            "barrier.TABLES.create_all(engine), or give Alembic barrier.TABLES as one more target_metadata and migrate"
        )
    if sqlstate == LOCK_NOT_AVAILABLE:
        return Unclear("a copy of this call is running, and this one was not carried out: ask again when it has ended")
    if getattr(driver, "sqlite_errorcode", 0) & 0xFF == SQLITE_BUSY:
        return Unclear("another writer holds the database, and this call was not carried out: ask again")
    if problem.connection_invalidated or (isinstance(problem, exc.OperationalError) and _is_connecting(problem)):
        return _unreachable(problem)
    return None


def _unreachable(problem: Exception) -> TryLater:
    log.warning("a call was sent away, because the database can't be reached: %r", problem)
    return TryLater("the participant's database can't be reached")


def _is_drivers_own(problem: Exception) -> bool:
    """Whether a driver raised it as it connected: SQLAlchemy hands on as they are what asyncpg raises then, the
    operating system's errors and the server's, and makes its own of all that come later.
    """
    return isinstance(problem, OSError) or hasattr(problem, "sqlstate")


def _is_connecting(problem: exc.DBAPIError) -> bool:
    """Whether it was raised before there was a statement: when SQLAlchemy connects it has none to show."""
    return problem.statement is None
