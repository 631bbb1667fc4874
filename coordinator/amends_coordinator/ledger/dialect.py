"""What differs between databases, and nothing else of the ledger knows: connections, transactions, errors, the lock.

Statements are SQLAlchemy Core and compile for every dialect; `FOR NO KEY UPDATE SKIP LOCKED` and `FOR SHARE` are in
them, and SQLite, where one writer has the whole file, compiles them to nothing.
"""

from __future__ import annotations

from enum import Enum, auto
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Column, Connection, Engine, Insert, Select, Table
    from sqlalchemy.engine import Dialect
    from sqlalchemy.exc import DBAPIError

    from amends_coordinator.core.ids import Instant
    from amends_coordinator.ledger.rows import Row, Seen, Unlike


NONE: Mapping[str, str] = MappingProxyType({})


class Fault(Enum):
    """What a database's error means for the transaction that met it, which is not committed (at COMMIT: perhaps)."""

    DATA = auto()
    """The data of a statement is refused; repeating it is useless."""
    CLASH = auto()
    """Transactions were in each other's way: send it again at once."""
    LOCKED = auto()
    """Somebody else keeps something locked that it needs, or it took too long: others may go on without it."""
    UNAVAILABLE = auto()
    """Everything else: on a new connection, after a pause, it may work."""


class Lock(Protocol):
    """Held by the one process that may use the ledger."""

    def acquire(self) -> None:
        """Take it. Raises LedgerLockedError, or LedgerUnavailableError where that can't be found out."""
        ...

    def require_held(self) -> None:
        """Return if it is still held.

        Raises:
            NodeFencedError: it was lost, so another process may have it: start again as a new incarnation.
            LedgerUnavailableError: it was lost with the database, which is still away: hold still.
        """
        ...

    def release(self) -> None:
        """Give it back; nothing happens if it isn't held."""
        ...


class RowsStatement(Protocol):
    """A statement that writes many rows."""

    def run(self, connection: Connection, values: Sequence[Row]) -> int:
        """Execute it for these rows, and answer how many it inserted or changed; nothing is sent for no row."""
        ...


class IdsStatement(Protocol):
    """A question about the rows with some ids."""

    def fetch(self, connection: Connection, ids: Sequence[str]) -> list[Any]:
        """Its rows (Any: what is in them is the statement's business)."""
        ...


class UnlikeStatement(Protocol):
    """The guard: a question about the sagas that aren't as their decisions saw them."""

    def fetch(self, connection: Connection, seen: Sequence[Seen]) -> dict[str, Unlike | None]:
        """Keep the sagas from being written by others, and answer of those that aren't as they were seen what they are;
        None: it isn't there, or somebody keeps it locked. `seen` is in the order of the ids.
        """
        ...


class ManyRows(Protocol):
    """Makes statements for many rows, as one kind of database takes them best.

    They go to the driver as they are, so the values of a row must be ones that drivers take: text, numbers, bytes,
    booleans, None, and instants as `SqlDialect.instant` makes them.
    """

    def insert_new(self, table: Table, columns: Sequence[str]) -> RowsStatement:
        """Inserts rows of these columns, in their order; what exists is left as it is."""
        ...

    def insert_or_update(
        self,
        table: Table,
        columns: Sequence[str],
        *,
        key: Sequence[str],
        changed: Sequence[str],
        constants: Mapping[str, str] = NONE,
    ) -> RowsStatement:
        """The same, but of a row with the same key the columns `changed` are changed. `constants` are further columns
        that hold the same in every row, as SQL.
        """
        ...

    def update(self, table: Table, changed: Sequence[str], *, key: Sequence[str]) -> RowsStatement:
        """Changes rows by their key; each row has the values of `changed`, then those of the key."""
        ...

    def select_by_id(self, question: Select[*tuple[Any, ...]], id_column: Column[Any]) -> IdsStatement:
        """The question, asked of the rows with given ids."""
        ...

    def select_unlike(self, table: Table) -> UnlikeStatement:
        """The guard of the sagas in this table."""
        ...


class SqlDialect(Protocol):
    """One kind of database at one place."""

    @property
    def place(self) -> str:
        """Where the database is, for messages; never a password."""
        ...

    @property
    def noun(self) -> str:
        """What is at the place: a file, a database."""
        ...

    @property
    def quarantine_s(self) -> float:
        """For how long the lock has to be held before older incarnations may be fenced: until then one of them may
        live on that lost the lock without having noticed.
        """
        ...

    @property
    def answer_bound_s(self) -> float:
        """For how long a connection may say nothing before it counts as one that leads nowhere."""
        ...

    def cutter(self, connection: Connection) -> Callable[[], None]:
        """What ends the connection from any thread, so that whoever waits for its answer meets an error."""
        ...

    @property
    def is_cheap_by_column(self) -> bool:
        """Whether a row costs less to write the fewer of its columns are; else one statement for all is best."""
        ...

    def exists(self) -> bool:
        """Whether there is a database to connect to (True where only connecting can tell)."""
        ...

    def obstacle(self) -> str | None:
        """Why what is at the place can't be used as a database, where that can be seen without connecting."""
        ...

    def unsuitable(self, connection: Connection) -> str | None:
        """Why a ledger can't be kept in this database, whatever it holds."""
        ...

    def lock(self) -> Lock:
        """The lock of the whole ledger."""
        ...

    def writer_engine(self) -> Engine:
        """Makes the writer's connections: new ones each time, never shared."""
        ...

    def migration_engine(self) -> Engine:
        """The same for changes of the schema, which may take long."""
        ...

    def reader_engine(self, connections: int) -> Engine:
        """Keeps up to this many connections for reading."""
        ...

    def begin_write(self, connection: Connection) -> None:
        """Begin a transaction that will write."""
        ...

    def begin_read(self, connection: Connection) -> None:
        """Begin a transaction whose reads all see the same state."""
        ...

    def wait_briefly(self, connection: Connection) -> None:
        """In the transaction that was just begun, wait for no lock longer than a moment."""
        ...

    def commit(self, connection: Connection) -> None:
        """Commit. Returns only if the database said that it is committed; any error leaves that open."""
        ...

    def roll_back(self, connection: Connection) -> None:
        """Undo the transaction that was begun to write."""
        ...

    def insert_new(self, table: Table) -> Insert:
        """An insert that does nothing where the row exists."""
        ...

    def insert_or_update(self, table: Table, *, key: Sequence[str], changed: Sequence[str]) -> Insert:
        """An insert that, where a row has the same key, changes the named columns of it."""
        ...

    def instant(self, value: Instant | None) -> object:
        """An instant as the driver takes it, for statements that go past SQLAlchemy's types."""
        ...

    def many_rows(self, compiler: Dialect) -> ManyRows:
        """How statements for many rows are made; `compiler` is SQLAlchemy's own dialect."""
        ...

    def judge(self, error: DBAPIError) -> Fault:
        """What an error means."""
        ...

    def explain(self, error: DBAPIError) -> str:
        """What the database said, in a few words without data or secrets."""
        ...

    def is_foreign(self, error: DBAPIError) -> bool:
        """Whether the error says that what is there is no (whole) database of this kind: trying again is useless."""
        ...
