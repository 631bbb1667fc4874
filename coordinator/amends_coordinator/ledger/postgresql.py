"""PostgreSQL as a dialect of the ledger: row locks, sessions that give up in time, and commits that are believed only
when the server says so.

Every connection is in the driver's autocommit mode, and BEGIN and COMMIT are statements like others: the driver's own
commit returns normally when the server answered COMMIT with ROLLBACK.

What a session may do to others is bounded by the lease, so that a node that froze in the middle of a transaction blocks
neither its own fencing nor anybody's rows for longer: the server ends a transaction that idles, a wait for a lock, a
statement, and a connection whose client is gone. And a server that says nothing for longer than that is given up: the
connection is cut, and the wait for its answer with it.
"""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
from sqlalchemy import create_engine, event
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.exc import DataError, DBAPIError, NotSupportedError, OperationalError, ProgrammingError
from sqlalchemy.pool import NullPool, QueuePool

from amends_coordinator.ledger.advisory_lock import AdvisoryLock
from amends_coordinator.ledger.arrays import Arrays
from amends_coordinator.ledger.dialect import Fault
from amends_coordinator.ledger.instants import instant_to_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection, Engine, Insert, Table
    from sqlalchemy.engine import URL, Dialect

    from amends_coordinator.core.ids import Instant
    from amends_coordinator.ledger.dialect import Lock, ManyRows

LONGEST_LOCK_WAIT_S = 1.0
"""Nothing that a healthy ledger does keeps a lock for longer; below half of the lease in any case."""

BRIEF_LOCK_WAIT_MS = 50
"""The wait of a decision that is tried alone because its rows were locked."""

ANSWER_SLACK_S = 1.0
"""How much longer than a statement may take its answer is waited for."""

_CLASHES = frozenset({"40001", "40P01"})  # serialization failure, deadlock
_LOCKED = frozenset({"55P03", "57014"})  # lock timeout, statement timeout
_DATA_CLASSES = frozenset({"21", "22", "23", "54"})  # cardinality, data, constraints, limits of the program
_NO_DATABASE = re.compile(r'database ".*" does not exist')
_REASONS = {
    "25006": "the server only reads: is it a standby?",
    "28000": "the server refuses this user",
    "28P01": "the server refuses the user or the password",
    "3D000": "there is no such database: make it with createdb",
    "42501": "this user has too few rights in it",
    "53100": "the server's disk is full",
    "53300": "the server has too many connections",
    "57P01": "the server ended the session: an administrator did, or it is shutting down",
    "57P02": "the server crashed",
    "57P03": "the server is starting up",
}


class PostgresqlDialect:
    """PostgreSQL at a URL, through psycopg.

    Args:
        url: as `factory.postgresql_url` makes it.
        lease_s: how long a node that shows no sign of life keeps its rights.
    """

    def __init__(self, url: URL, *, lease_s: float = 10.0) -> None:
        self._url = url
        self._lease_s = lease_s

    @property
    def place(self) -> str:
        """Server and database; no user, no password."""
        host = self._url.host or ",".join(_texts(self._url.query.get("host"))) or "the default server"
        port = "" if self._url.port is None else f":{self._url.port}"
        return f"postgresql://{host}{port}/{self._url.database or ''}"

    @property
    def noun(self) -> str:
        """See the protocol."""
        return "database"

    @property
    def quarantine_s(self) -> float:
        """A whole lease: the lock goes with its connection, which may be lost while its process lives."""
        return self._lease_s

    @property
    def answer_bound_s(self) -> float:
        """A little longer than the server lets a statement take: one that answers at all answers by then."""
        return self._lease_s + ANSWER_SLACK_S

    def cutter(self, connection: Connection) -> Callable[[], None]:
        """See the protocol. A server that is frozen keeps its connections open, so nobody else ends the wait."""
        driver: Any = connection.connection.driver_connection  # psycopg's own, which SQLAlchemy doesn't type

        def cut() -> None:
            with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(driver.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)

        return cut

    @property
    def is_cheap_by_column(self) -> bool:
        """A row that changes is written anew, with all its indexes; and a statement is a round trip."""
        return False

    def exists(self) -> bool:
        """Only connecting can tell."""
        return True

    def obstacle(self) -> str | None:
        """Only connecting can tell."""
        return None

    def unsuitable(self, connection: Connection) -> str | None:
        """See the protocol."""
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
        if encoding == "UTF8":
            return None
        return f"its encoding is {encoding}, which can't hold every text: make one with createdb --encoding=UTF8"

    def lock(self) -> Lock:
        """An advisory lock, on a connection of its own."""
        return AdvisoryLock(self, self._engine({"idle_session_timeout": "0"}), ping_interval_s=self._lease_s / 4)

    def writer_engine(self) -> Engine:
        """See the protocol."""
        return self._engine({"statement_timeout": _milliseconds(self._lease_s)})

    def migration_engine(self) -> Engine:
        """Where a statement may take as long as it takes."""
        return self._engine({"statement_timeout": "0", "idle_in_transaction_session_timeout": "0"})

    def reader_engine(self, connections: int) -> Engine:
        """See the protocol."""
        settings = {"statement_timeout": _milliseconds(self._lease_s), "default_transaction_read_only": "on"}
        return self._engine(settings, poolclass=QueuePool, pool_size=connections, max_overflow=0)

    def begin_write(self, connection: Connection) -> None:
        """See the protocol."""
        connection.exec_driver_sql("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")

    def begin_read(self, connection: Connection) -> None:
        """See the protocol."""
        connection.exec_driver_sql("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def wait_briefly(self, connection: Connection) -> None:
        """See the protocol."""
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {BRIEF_LOCK_WAIT_MS}")

    def commit(self, connection: Connection) -> None:
        """See the protocol. COMMIT is a round trip of its own, and its command tag is looked at."""
        driver: Any = connection.connection.driver_connection  # psycopg's own, which SQLAlchemy doesn't type
        try:
            answer = driver.execute("COMMIT").statusmessage
        except psycopg.Error as error:
            raise OperationalError("COMMIT", None, error) from error
        if answer != "COMMIT":
            raise OperationalError("COMMIT", None, NotCommittedError(answer))
        connection.commit()  # SQLAlchemy's own notion of a transaction ends too; the server is told nothing more

    def roll_back(self, connection: Connection) -> None:
        """See the protocol."""
        connection.rollback()

    def many_rows(self, compiler: Dialect) -> ManyRows:
        """See the protocol."""
        return Arrays(compiler)

    def insert_new(self, table: Table) -> Insert:
        """See the protocol."""
        return postgresql_insert(table).on_conflict_do_nothing()

    def insert_or_update(self, table: Table, *, key: Sequence[str], changed: Sequence[str]) -> Insert:
        """See the protocol."""
        statement = postgresql_insert(table)
        return statement.on_conflict_do_update(
            index_elements=list(key), set_={name: statement.excluded[name] for name in changed}
        )

    def instant(self, value: Instant | None) -> object:
        """See the protocol. Text costs less than a datetime, and the server reads both."""
        return None if value is None else instant_to_text(value) + "+00"

    def judge(self, error: DBAPIError) -> Fault:
        """See the protocol."""
        state = _sqlstate(error)
        if state in _CLASHES:
            return Fault.CLASH
        if state in _LOCKED:
            return Fault.LOCKED
        refused_by_driver = state is None and isinstance(error, (DataError, NotSupportedError, ProgrammingError))
        if refused_by_driver or (state is not None and state[:2] in _DATA_CLASSES):
            return Fault.DATA
        return Fault.UNAVAILABLE

    def explain(self, error: DBAPIError) -> str:
        """See the protocol. Of what the server says only the first line: details and context quote the data."""
        state = _sqlstate(error)
        if state in _REASONS:
            return _REASONS[state]
        diagnosis = getattr(error.orig, "diag", None)
        said = getattr(diagnosis, "message_primary", None) or " ".join(str(error.orig).split())
        for secret in (self._url.password, *_texts(self._url.query.get("password"))):
            said = said.replace(str(secret), "***") if secret else said
        return f"PostgreSQL says: {said}" + ("" if state is None else f" (SQLSTATE {state})")

    def is_foreign(self, error: DBAPIError) -> bool:
        """Whatever answers is a PostgreSQL."""
        del error
        return False

    def _engine(self, settings: Mapping[str, str], **options: Any) -> Engine:  # Any: arguments of create_engine
        engine = create_engine(
            self._url,
            isolation_level="AUTOCOMMIT",
            hide_parameters=True,
            use_native_hstore=False,
            connect_args=self._connect_arguments(),
            **({"poolclass": NullPool} | options),
        )
        wanted = {**self._session_settings(), **settings}

        def prepare(connection: psycopg.Connection[Any], record: object) -> None:  # Any: rows of any kind
            _prepare(connection, wanted)

        event.listen(engine, "connect", prepare)
        return engine

    def _connect_arguments(self) -> dict[str, Any]:  # Any: libpq takes text and numbers
        """How a connection that leads nowhere is noticed; what the URL says itself stays."""
        idle_s = max(1, round(self._lease_s / 4))
        wanted = {
            "connect_timeout": max(2, round(self._lease_s / 2)),
            "fallback_application_name": "amends",
            "keepalives": 1,
            "keepalives_idle": idle_s,
            "keepalives_interval": idle_s,
            "keepalives_count": 2,
            "tcp_user_timeout": round(self._lease_s * 1_000),
        }
        return {name: value for name, value in wanted.items() if name not in self._url.query}

    def _session_settings(self) -> dict[str, str]:
        """What the server itself ends in time, see the module."""
        idle_s = max(1, round(self._lease_s / 4))
        return {
            "TimeZone": "UTC",
            "client_encoding": "UTF8",
            "lock_timeout": _milliseconds(min(LONGEST_LOCK_WAIT_S, self._lease_s * 0.4)),
            "idle_in_transaction_session_timeout": _milliseconds(self._lease_s / 2),
            "tcp_keepalives_idle": str(idle_s),
            "tcp_keepalives_interval": str(idle_s),
            "tcp_keepalives_count": "2",
            "tcp_user_timeout": _milliseconds(self._lease_s),
        }


class NotCommittedError(Exception):
    """The server answered COMMIT with something else: the transaction had failed before."""

    def __init__(self, answer: str | None) -> None:
        super().__init__(f"COMMIT was answered with {answer}: nothing was committed")


_SET_WHAT_THERE_IS = """
SELECT set_config(wanted.name, wanted.value, false)
FROM unnest(%s::text[], %s::text[]) AS wanted(name, value) JOIN pg_settings ON pg_settings.name = wanted.name
"""
_COMMITS_REACH_THE_DISK = """
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'
"""


def _prepare(connection: psycopg.Connection[Any], settings: Mapping[str, str]) -> None:
    """Set what this server knows of the settings; older ones and relatives don't know all of them."""
    connection.execute(_SET_WHAT_THERE_IS, [list(settings), list(settings.values())])
    connection.execute(_COMMITS_REACH_THE_DISK)
    connection.commit()


def _sqlstate(error: DBAPIError) -> str | None:
    state: str | None = getattr(error.orig, "sqlstate", None)
    if state is None and _NO_DATABASE.search(str(error.orig)):
        return "3D000"  # of a connection that is refused the driver keeps the text only
    return state


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1_000)))


def _texts(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """The values of a part of a URL's query, which may be there several times."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)
