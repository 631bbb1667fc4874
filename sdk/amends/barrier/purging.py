"""`barrier.purge`: forgets old keys, and says so from then on.

First the horizon moves, in a transaction of its own; only then rows are deleted. So a call that finds no row and a step
older than the horizon knows that it can't know. Rows carry the step's time by the coordinator's clock, as calls do.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, overload

from sqlalchemy.ext.asyncio import async_sessionmaker

from amends.barrier import statements
from amends.barrier.databases import commit, connection_of, entering
from amends.barrier.errors import BarrierUseError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session, sessionmaker

SHORTEST = timedelta(hours=1)
DEFAULT_AGE = timedelta(days=60)
DEFAULT_BATCH_SIZE = 1_000


@overload
def purge(
    sessions: async_sessionmaker[AsyncSession], *, older_than: timedelta = ..., batch_size: int = ...
) -> Awaitable[int]: ...
@overload
def purge(sessions: sessionmaker[Session], *, older_than: timedelta = ..., batch_size: int = ...) -> int: ...
def purge(
    sessions: async_sessionmaker[Any] | sessionmaker[Any],  # Any: whatever session class the application has
    *,
    older_than: timedelta = DEFAULT_AGE,
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> Awaitable[int] | int:
    """Forget the keys of old steps. Safe to repeat, to interrupt, and to run beside calls and beside itself.

    Of a step older than that nothing is known any more: its calls are answered `ABORTED`, and a person decides. So keep
    rows for longer than any step is called again, dead letters that people retry included.

    Args:
        sessions: the ones that `barrier.transaction` has.
        older_than: at least an hour, counted from when the step's action was first announced.
        batch_size: how many rows one transaction deletes.

    Returns:
        How many rows were deleted.

    Raises:
        BarrierUseError: an argument can't be used, or the tables are missing.
        TryLater: the database can't be reached.
    """
    if older_than < SHORTEST or batch_size < 1:
        raise BarrierUseError(
            f"purge(older_than={older_than}, batch_size={batch_size}): keep rows for an hour at least, better for "
            "longer than any step is repeated, and delete at least one at a time"
        )
    horizon = datetime.now(UTC) - older_than
    if isinstance(sessions, async_sessionmaker):
        return _purge(sessions, horizon, batch_size)
    return _purge_in_thread(sessions, horizon, batch_size)


async def _purge(sessions: async_sessionmaker[AsyncSession], horizon: datetime, batch_size: int) -> int:
    async with sessions() as session:
        await session.run_sync(_move_horizon, horizon)
        total = 0
        while True:
            deleted = await session.run_sync(_delete_batch, horizon, batch_size)
            total += deleted
            if deleted < batch_size:
                return total


def _purge_in_thread(sessions: sessionmaker[Session], horizon: datetime, batch_size: int) -> int:
    with sessions() as session:
        _move_horizon(session, horizon)
        total = 0
        while True:
            deleted = _delete_batch(session, horizon, batch_size)
            total += deleted
            if deleted < batch_size:
                return total


def _move_horizon(session: Session, horizon: datetime) -> None:
    with entering():
        statements.move_horizon(connection_of(session), horizon)
    commit(session)


def _delete_batch(session: Session, horizon: datetime, batch_size: int) -> int:
    deleted = statements.delete_forgotten(connection_of(session), before=horizon, limit=batch_size)
    commit(session)
    return deleted
