"""Writes what a session has published into its transaction, as late as possible, and in an order that means something.

Numbers are given out before a commit and seen only after it, so on PostgreSQL a relay may meet a later number first.
For events of one key that must not happen. So just before its commit a transaction takes, in sorted order, a lock per
key that ends with it, and only then its rows' numbers: two transactions with one key go through here one after the
other, and the smaller number is committed before the larger one is given. Nothing else is asked for between the locks
and the commit, so that no two transactions wait for each other. SQLite has one writer at a time and needs no locks.

What was published and isn't written yet waits here, beside the session, with the savepoints that it depends on: what
is rolled back was never published.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from sqlalchemy import BigInteger, bindparam, event, func, insert, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from amends.outbox import wakes
from amends.outbox.errors import OutboxUseError
from amends.outbox.tables import OUTBOX, RELAY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy.orm import SessionTransaction

Row: TypeAlias = dict[str, Any]  # Any: the values of a row, of as many types as it has columns

DATABASES = ("postgresql", "sqlite")
UNDEFINED_TABLE = "42P01"  # PostgreSQL's code

_INFO = "amends_outbox"


class _Unwritten:
    """What one session has published and not committed yet."""

    __slots__ = ("ending", "rows", "written")

    def __init__(self) -> None:
        self.rows: list[tuple[Row, tuple[SessionTransaction, ...]]] = []
        self.written = False
        self.ending: SessionTransaction | None = None  # the savepoint that was innermost when a commit began


def add(session: Session, row: Row) -> None:
    """Have a row written with the session's current transaction, if that and its savepoints are committed.

    Raises:
        OutboxUseError: the session's database is none that the outbox can be in.
    """
    check_database(session)
    unwritten = _of(session)
    if session.get_transaction() is None:
        session.begin()
    unwritten.rows.append((row, _enclosing(session)))


def write(session: Session, rows: Iterable[Row]) -> None:
    """Write rows now; to be called just before the commit.

    Raises:
        OutboxUseError: the tables are missing.
        Exception: the database's.
    """
    rows = list(rows)
    session.flush()
    if session.get_bind(clause=OUTBOX).dialect.name == "postgresql":
        for lock in sorted({_lock(row["key"]) for row in rows}):
            session.execute(select(func.pg_advisory_xact_lock(bindparam("lock", lock, BigInteger))))
    try:
        session.execute(insert(OUTBOX), rows)
    except DBAPIError as problem:
        if (meaning := explained(problem)) is problem:
            raise
        raise meaning from problem


def explained(problem: Exception) -> Exception:
    """What an error of the database means where that can be said; else the error itself."""
    told = str(problem.orig) if isinstance(problem, DBAPIError) else ""
    undefined = getattr(getattr(problem, "orig", None), "sqlstate", None) == UNDEFINED_TABLE or "no such table" in told
    if not (undefined and OUTBOX.name in told):
        return problem
    return OutboxUseError(
        f"this database has no table {OUTBOX.name} or {RELAY.name}: make them with outbox.TABLES.create_all(engine), "
        "or give Alembic outbox.TABLES as one more target_metadata and migrate"
    )


def check_database(session: Session) -> None:
    """See that the outbox can be in this session's database.

    Raises:
        OutboxUseError: it can't.
    """
    name = session.get_bind(clause=OUTBOX).dialect.name
    if name not in DATABASES:
        raise OutboxUseError(f"an outbox can't be in a database of the kind {name!r}, only in PostgreSQL or SQLite")


def _lock(key: str) -> int:
    """The number of the advisory lock of a key: 64 bits that nobody else uses, but by chance."""
    return int.from_bytes(hashlib.sha256(f"amends_outbox/{key}".encode()).digest()[:8], "big", signed=True)


def _of(session: Session) -> _Unwritten:
    """What waits beside the session, which is watched from the first time on."""
    found = cast("_Unwritten | None", session.info.get(_INFO))
    if found is not None:
        return found
    session.info[_INFO] = made = _Unwritten()
    event.listen(session, "before_commit", _before_commit)
    event.listen(session, "after_commit", _after_commit)
    event.listen(session, "after_soft_rollback", _after_rollback)
    event.listen(session, "after_transaction_end", _after_end)
    return made


def _enclosing(session: Session) -> tuple[SessionTransaction, ...]:
    """The session's innermost savepoint, those around it, and its transaction."""
    transaction = session.get_nested_transaction() or session.get_transaction()
    found: list[SessionTransaction] = []
    while transaction is not None:
        found.append(transaction)
        transaction = transaction.parent
    return tuple(found)


def _before_commit(session: Session) -> None:
    unwritten = _of(session)
    savepoint = session.get_nested_transaction()
    if savepoint is not None:
        # Twice for one savepoint: what is around it is being committed, and takes it along. Where that is the whole
        # transaction nobody asks again, and the work would be committed without its events.
        if unwritten.ending is savepoint and unwritten.rows:
            raise OutboxUseError(
                "a transaction with events is being committed while a savepoint in it is still open: end that first, "
                "by commit() or rollback() of what begin_nested() returned, or by the end of its `with` block"
            )
        unwritten.ending = savepoint
        return
    rows, unwritten.rows = [row for row, _ in unwritten.rows], []
    if rows:
        write(session, rows)
        unwritten.written = True


def _after_commit(session: Session) -> None:
    if not session.in_nested_transaction() and _of(session).written:
        wakes.published()


def _after_rollback(session: Session, ended: SessionTransaction) -> None:
    unwritten = _of(session)
    unwritten.rows = [(row, enclosing) for row, enclosing in unwritten.rows if ended not in enclosing]


def _after_end(session: Session, ended: SessionTransaction) -> None:
    unwritten = _of(session)
    unwritten.ending = None
    if ended.parent is None:
        unwritten.rows, unwritten.written = [], False
