"""One process per ledger on PostgreSQL: an advisory lock on a connection of its own, and somebody who watches it.

The server gives the lock back when the connection ends, however that comes about. So a process can lose it and live on:
because a session was ended by an administrator, because the server was started again, because the network failed. A
thread notices that, at once where the connection is closed and within a ping where it leads nowhere. From then on
nothing is written (hence nothing called) any more:

* while the server can't be reached, writes are answered as unavailable: everything holds still;
* once it can be reached again, this incarnation is over. Another process may have the lock, may have migrated the
  schema; the next incarnation finds out when it opens the ledger.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import structlog
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from amends_coordinator.ports.ledger import LedgerLockedError, LedgerUnavailableError, NodeFencedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, Engine

    from amends_coordinator.ledger.dialect import SqlDialect

LONGEST_RETRY_PAUSE_S = 1.0
ENDING_S = 2.0
"""How long the server may take to end the session of a holder that is gone: whoever starts right after it waits for
that instead of being refused."""
LOOK_AGAIN_S = 0.05

# The schema is part of the key: two ledgers may share a database.
_KEY = "hashtextextended('amends ledger in ' || coalesce(current_schema(), ''), 0)"
_TAKE = text(f"SELECT pg_try_advisory_lock({_KEY})")
_HOLDER = text(f"""
SELECT session.pid, session.application_name, coalesce(host(session.client_addr), 'a local socket')
FROM pg_locks JOIN pg_stat_activity AS session USING (pid)
WHERE locktype = 'advisory' AND granted AND session.datname = current_database()
    AND ((classid::bigint << 32) | objid::bigint) = {_KEY}
""")  # noqa: S608 - the key is the constant above
_PING = text("SELECT 1")

_log: Any = structlog.get_logger(__name__)  # structlog's loggers are untyped proxies


class AdvisoryLock:
    """See the module.

    Args:
        dialect: explains errors and names the place.
        engine: makes a new connection each time.
        ping_interval_s: how often a connection that says nothing is asked whether it still leads to the server.
    """

    def __init__(self, dialect: SqlDialect, engine: Engine, *, ping_interval_s: float) -> None:
        self._dialect = dialect
        self._engine = engine
        self._ping_interval_s = ping_interval_s
        self._connection: Connection | None = None
        self._watching: threading.Thread | None = None
        self._wake: socket.socket | None = None
        self._stopped = threading.Event()
        self._cut: Callable[[], None] | None = None
        self._lost: str | None = None
        self._server_is_back = False

    def acquire(self) -> None:
        """See the protocol."""
        connection = self._engine_connection()
        try:
            if not self._taken(connection):
                raise LedgerLockedError(
                    f"the ledger is in use: {_holder(connection)} holds the lock of {self._dialect.place}. "
                    "Stop that process, or give this one another ledger"
                )
        except DBAPIError as error:
            connection.close()
            raise self._unusable(error) from error
        except LedgerLockedError:
            connection.close()
            raise
        self._connection = connection
        self._cut = self._dialect.cutter(connection)
        self._wake, woken = socket.socketpair()
        self._watching = threading.Thread(target=self._watch, args=(connection, woken), name="ledger-lock", daemon=True)
        self._watching.start()

    def _taken(self, connection: Connection) -> bool:
        """Take the lock, as soon as it is free."""
        end_s = time.monotonic() + ENDING_S
        while not connection.execute(_TAKE).scalar_one():
            if time.monotonic() > end_s or self._stopped.wait(LOOK_AGAIN_S):
                return False
        return True

    def require_held(self) -> None:
        """See the protocol."""
        if self._lost is None:
            return
        if self._server_is_back:
            raise NodeFencedError(
                f"this process lost the lock of {self._dialect.place} ({self._lost}), so another one may have it: drop "
                "everything it holds and start as a new incarnation"
            )
        raise LedgerUnavailableError(
            f"the ledger at {self._dialect.place} can't be used: {self._lost}; it is tried again by itself, and this "
            "call may be repeated"
        )

    def release(self) -> None:
        """See the protocol."""
        self._stopped.set()
        if self._wake is not None:
            self._wake.close()  # which wakes the thread
        if self._cut is not None:
            self._cut()  # which it may be waiting for
        if self._watching is not None:
            self._watching.join()
        connection, self._connection = self._connection, None
        if connection is not None:
            _end(connection)
        self._engine.dispose()

    def _engine_connection(self) -> Connection:
        try:
            return self._engine.connect()
        except DBAPIError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: DBAPIError) -> LedgerUnavailableError:
        return LedgerUnavailableError(
            f"the ledger at {self._dialect.place} can't be used: {self._dialect.explain(error)}; correct that and "
            "start again, or name another database"
        )

    # ---- everything below runs in the thread ----

    def _watch(self, connection: Connection, woken: socket.socket) -> None:
        """Ping until told to stop; after a loss wait for the server."""
        driver_connection: Any = connection.connection.driver_connection  # psycopg's, which SQLAlchemy doesn't type
        try:
            with woken, selectors.DefaultSelector() as selector:
                selector.register(driver_connection.fileno(), selectors.EVENT_READ)
                selector.register(woken, selectors.EVENT_READ)
                while not self._stopped.is_set():
                    selector.select(self._ping_interval_s)
                    connection.execute(_PING)
        except DBAPIError as error:
            if not self._stopped.is_set():
                self._lost = f"the connection that holds its lock is gone; {self._dialect.explain(error)}"
                _log.error("ledger lock lost", place=self._dialect.place, reason=self._lost)
                self._await_server()

    def _await_server(self) -> None:
        pause_s = LONGEST_RETRY_PAUSE_S / 16
        while not self._stopped.is_set():
            try:
                self._engine.connect().close()
            except DBAPIError:
                self._stopped.wait(pause_s)
                pause_s = min(2 * pause_s, LONGEST_RETRY_PAUSE_S)
            else:
                self._server_is_back = True
                return


def _holder(connection: Connection) -> str:
    """Who holds the lock, as the server knows it."""
    found = connection.execute(_HOLDER).first()
    return "another session" if found is None else f"session {found[0]} ({found[1] or 'unnamed'}) from {found[2]}"


def _end(connection: Connection) -> None:
    """Close it for good, whatever state it is in: with it goes the lock."""
    try:
        connection.invalidate()
        connection.close()
    except DBAPIError as error:
        _log.debug("ledger lock's connection was gone already", error=type(error).__name__)
