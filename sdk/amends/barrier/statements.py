"""The barrier's SQL: claim a row, read it, finish it, and how far back it remembers. PostgreSQL and SQLite.

All of it blocks and takes a plain `Connection`; an `AsyncSession` hands one over with `run_sync`. Nothing here commits.

A claim is the first statement of its transaction. On PostgreSQL it waits for the transaction of a copy that claimed the
same row, and on SQLite for every other writer; so who finds a row finds what became of the copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, delete, select, text, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite

from amends.barrier.errors import Unclear
from amends.barrier.rules import Found
from amends.barrier.tables import BARRIER, HORIZON

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.sql.expression import Executable

DIALECTS: Final = frozenset({"postgresql", "sqlite"})
CLAIMS_TRIED = 5
RESUMED = "its body was run again"

Values = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What stands in the table for one key. The columns are described in `tables`."""

    key: str
    method: str
    state: Found
    request_hash: bytes | None
    response: bytes | None
    abort_reason: bytes | None
    code: str | None
    message: str | None
    reason: str | None


_INSERT = {
    name: insert(BARRIER).on_conflict_do_nothing().inline().execution_options(preserve_rowcount=True)
    for name, insert in (("postgresql", postgresql.insert), ("sqlite", sqlite.insert))
}
_OF_KEY = (BARRIER.c.ledger == bindparam("of_ledger"), BARRIER.c.key == bindparam("of_key"))
_READ = select(BARRIER).where(*_OF_KEY)
_UPDATE = update(BARRIER).where(*_OF_KEY, BARRIER.c.state == bindparam("of_state"))
_UPDATE_ALONE = _UPDATE.where(BARRIER.c.message.is_(None))
_HORIZON = select(HORIZON.c.forgotten_before)


def claim(connection: Connection, values: Values) -> bool:
    """Insert a row; False where one stands for its key already."""
    return connection.execute(_INSERT[connection.dialect.name], dict(values)).rowcount == 1


def read(connection: Connection, ledger: str, key: str) -> Row | None:
    """The row of a key; None if there is none."""
    found = connection.execute(_READ, {"of_ledger": ledger, "of_key": key}).one_or_none()
    if found is None:
        return None
    return Row(
        key=key,
        method=found.method,
        state=Found(found.state),
        request_hash=found.request_hash,
        response=found.response,
        abort_reason=found.abort_reason,
        code=found.code,
        message=found.message,
        reason=found.reason,
    )


def claim_or_read(connection: Connection, values: Values) -> Row | None:
    """Claim a row; None where that succeeded, else the row that stands there.

    Raises:
        Unclear: each time that it was not to be claimed, it was not to be read either.
    """
    for _ in range(CLAIMS_TRIED):
        if claim(connection, values):
            return None
        row = read(connection, str(values["ledger"]), str(values["key"]))
        if row is not None:
            return row
    raise Unclear(f"the row of key {values['key']} comes and goes; ask again")


def finish(connection: Connection, ledger: str, key: str, *, was: Found, values: Values) -> bool:
    """Change the row of a key that is in state `was`; False where it isn't."""
    of = {"of_ledger": ledger, "of_key": key, "of_state": was.value}
    return connection.execute(_UPDATE, {**of, **values}).rowcount == 1


def mark_resumed(connection: Connection, ledger: str, key: str) -> bool:
    """Note that a `started` effect's body is run once more: an earlier one may still run, and knows nothing of that.
    False where it isn't `started`.
    """
    return finish(connection, ledger, key, was=Found.STARTED, values={"message": RESUMED})


def finish_alone(connection: Connection, ledger: str, key: str, values: Values) -> bool:
    """The same as `finish` of a `started` row, where its body was run only once so far."""
    of = {"of_ledger": ledger, "of_key": key, "of_state": Found.STARTED.value}
    return connection.execute(_UPDATE_ALONE, {**of, **values}).rowcount == 1


def forgotten_before(connection: Connection) -> datetime | None:
    """Of steps that are older, rows may be gone; None as long as nothing was ever purged."""
    found = connection.execute(_HORIZON).scalar_one_or_none()
    # SQLite knows no zones; everything that is written there is UTC.
    return found.replace(tzinfo=UTC) if found is not None and found.tzinfo is None else found


def move_horizon(connection: Connection, to: datetime) -> None:
    """Nothing is promised any more about steps older than `to`. It never moves back."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    insert = dialect.insert(HORIZON).values(id=1, forgotten_before=to)
    moved = insert.excluded.forgotten_before
    connection.execute(
        insert.on_conflict_do_update(
            index_elements=[HORIZON.c.id],
            set_={"forgotten_before": moved},
            where=HORIZON.c.forgotten_before < moved,
        )
    )


def delete_forgotten(connection: Connection, *, before: datetime, limit: int) -> int:
    """Delete at most `limit` rows of steps older than `before`, the oldest first; how many they were."""
    oldest = (
        select(BARRIER.c.ledger, BARRIER.c.key)
        .where(BARRIER.c.step_time < before)
        .order_by(BARRIER.c.step_time)
        .limit(limit)
        .with_for_update(skip_locked=True)  # SQLite has one writer at a time, and no such clause
    )
    return connection.execute(delete(BARRIER).where(tuple_(BARRIER.c.ledger, BARRIER.c.key).in_(oldest))).rowcount


def bound_waiting(connection: Connection, limit: timedelta) -> None:
    """On PostgreSQL: no statement of this transaction waits longer than that for a lock. It shortens only."""
    if connection.dialect.name == "postgresql":
        limit_ms = max(1, int(limit / timedelta(milliseconds=1)))
        connection.execute(_BOUND_WAITING, {"limit": f"{limit_ms}ms"})


_BOUND_WAITING: Executable = text(
    "SELECT set_config('lock_timeout', CASE WHEN current_setting('lock_timeout')::interval "
    "BETWEEN interval '1 ms' AND CAST(CAST(:limit AS text) AS interval) THEN current_setting('lock_timeout') "
    "ELSE CAST(:limit AS text) END, true)"
)
