"""The writer's one connection: transactions on it, and a new one after every error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import structlog
from sqlalchemy.exc import DBAPIError

from amends_coordinator.ledger.dialect import Fault
from amends_coordinator.ports.ledger import LedgerError, LedgerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection
    from sqlalchemy.engine import Dialect

    from amends_coordinator.ledger.dialect import SqlDialect

T = TypeVar("T")

_log: Any = structlog.get_logger(__name__)  # structlog's loggers are untyped proxies


class WriteConnection:
    """Belongs to one thread."""

    def __init__(self, dialect: SqlDialect) -> None:
        self._dialect = dialect
        self._engine = dialect.writer_engine()
        self._connection: Connection | None = None

    @property
    def compiler(self) -> Dialect:
        """SQLAlchemy's own dialect, to compile statements with."""
        return self._engine.dialect

    def transact(self, work: Callable[[Connection], T]) -> T:
        """Do the work in a transaction and commit it. After an error the connection is dropped, and with it the
        transaction; only what the work itself refuses (`LedgerError`) is rolled back and keeps the connection.

        Raises:
            LedgerUnavailableError: the database failed. If that was at the commit, it is open whether it is committed.
            Exception: what the work raised, or what the database said about its data; nothing is committed.
        """
        try:
            connection = self._connected()
            self._dialect.begin_write(connection)
            try:
                result = work(connection)
            except LedgerError:
                connection.rollback()
                raise
            self._dialect.commit(connection)
        except LedgerError:
            raise
        except DBAPIError as error:
            self.drop()
            if self._dialect.judge(error) is Fault.DATA:
                raise
            raise unavailable(self._dialect, error) from error
        except Exception:
            self.drop()
            raise
        return result

    def drop(self) -> None:
        """Close the connection for good: with it goes whatever transaction it had."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.invalidate()
            connection.close()
        except DBAPIError as error:
            _log.warning("ledger connection not closed", reason=self._dialect.explain(error))

    def close(self) -> None:
        """Drop the connection and make no more."""
        self.drop()
        self._engine.dispose()

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._engine.connect()
        return self._connection


def unavailable(dialect: SqlDialect, error: DBAPIError) -> LedgerUnavailableError:
    """The database's error in the port's words."""
    return LedgerUnavailableError(
        f"the ledger at {dialect.place} can't be used: {dialect.explain(error)}; it is tried again by itself, "
        "and this call may be repeated"
    )
