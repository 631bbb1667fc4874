"""The writer's one connection: transactions on it, and a new one after every error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import structlog
from sqlalchemy.exc import DBAPIError

from amends_coordinator.ledger.dialect import Fault
from amends_coordinator.ports.ledger import LedgerError, LedgerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine import Dialect

    from amends_coordinator.ledger.dialect import SqlDialect

T = TypeVar("T")

CLASHES_IN_A_ROW = 5
"""How often a transaction is made again at once because others were in its way; after that it waits like any other."""

_log: Any = structlog.get_logger(__name__)  # structlog's loggers are untyped proxies


class DataRefusedError(Exception):
    """The database refuses the data of the transaction; nothing is committed, and repeating it is useless."""


class LockWaitError(Exception):
    """Somebody keeps locked what the transaction needs; nothing is committed, and parts of it may go on."""


class WriteConnection:
    """Belongs to one thread."""

    def __init__(self, dialect: SqlDialect, engine: Engine | None = None) -> None:
        self._dialect = dialect
        self._engine = engine or dialect.writer_engine()
        self._connection: Connection | None = None
        self._cut: Callable[[], None] | None = None

    @property
    def compiler(self) -> Dialect:
        """SQLAlchemy's own dialect, to compile statements with."""
        return self._engine.dialect

    def transact(self, work: Callable[[Connection], T], *, wait_briefly: bool = False) -> T:
        """Do the work in a transaction and commit it. What fails before the commit is rolled back; after any other
        error the connection is dropped, and with it the transaction.

        Args:
            work: may be done more than once.
            wait_briefly: wait for no lock longer than a moment.

        Raises:
            LedgerUnavailableError: the database failed. If that was at the commit, it is open whether it is committed.
            DataRefusedError, LockWaitError: see there.
            Exception: what the work raised; nothing is committed.
        """
        clashes = 0
        while True:
            try:
                return self._attempt(work, wait_briefly=wait_briefly)
            except DBAPIError as error:
                clashes += 1
                if self._dialect.judge(error) is not Fault.CLASH or clashes == CLASHES_IN_A_ROW:
                    raise self._translated(error) from error

    def _attempt(self, work: Callable[[Connection], T], *, wait_briefly: bool) -> T:
        try:
            connection = self._connected()
            self._dialect.begin_write(connection)
            if wait_briefly:
                self._dialect.wait_briefly(connection)
        except DBAPIError:
            self.drop()
            raise
        try:
            result = work(connection)
        except Exception as error:
            self._undo(connection, error)
            raise
        try:
            self._dialect.commit(connection)
        except DBAPIError as error:
            self.drop()
            raise unavailable(self._dialect, error) from error
        return result

    def _undo(self, connection: Connection, error: Exception) -> None:
        """Roll back where the connection is sure to be sound, else drop it."""
        answered = isinstance(error, DBAPIError) and self._dialect.judge(error) is not Fault.UNAVAILABLE
        if not answered and not isinstance(error, LedgerError):
            self.drop()
            return
        try:
            self._dialect.roll_back(connection)
        except DBAPIError:
            self.drop()

    def _translated(self, error: DBAPIError) -> Exception:
        """The error as it leaves this module."""
        fault = self._dialect.judge(error)
        if fault is Fault.DATA:
            return DataRefusedError(self._dialect.explain(error))
        if fault is Fault.LOCKED:
            return LockWaitError(self._dialect.explain(error))
        return unavailable(self._dialect, error)

    def drop(self) -> None:
        """Close the connection for good: with it goes whatever transaction it had."""
        connection, self._connection, self._cut = self._connection, None, None
        if connection is None:
            return
        try:
            connection.invalidate()
            connection.close()
        except DBAPIError as error:
            _log.warning("ledger connection not closed", reason=self._dialect.explain(error))

    def cut(self) -> None:
        """End the connection under whoever waits for its answer; the one method that other threads may call."""
        if self._cut is not None:
            self._cut()

    def close(self) -> None:
        """Drop the connection and make no more."""
        self.drop()
        self._engine.dispose()

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._engine.connect()
            self._cut = self._dialect.cutter(self._connection)
        return self._connection


def unavailable(dialect: SqlDialect, error: DBAPIError) -> LedgerUnavailableError:
    """The database's error in the port's words."""
    return LedgerUnavailableError(
        f"the ledger at {dialect.place} can't be used: {dialect.explain(error)}; it is tried again by itself, "
        "and this call may be repeated"
    )
