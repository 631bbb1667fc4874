"""How long a call waits for somebody else's row: until shortly before its deadline, so that its answer arrives."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from amends.barrier import statements
from amends.barrier.errors import Unclear
from amends.barrier.tables import BARRIER

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

    from amends.barrier.calls import GuardedCall

T = TypeVar("T")
P = ParamSpec("P")

ANSWER_S = 0.1
"""What is kept of the time for the answer; a quarter of the time where there is less than four times as much."""


def limit_waiting(connection: Connection, call: GuardedCall) -> None:
    """A thread can't be called back from its wait, so its database is told when to end it."""
    bound_s = _bound_s(call)
    if call.served.threaded and bound_s is not None:
        statements.bound_waiting(connection, timedelta(seconds=bound_s))


async def in_time(
    call: GuardedCall, session: AsyncSession, work: Callable[Concatenate[Session, P], T], *args: P.args, **kw: P.kwargs
) -> T:
    """What is done below a session that may have to wait for a row.

    Only PostgreSQL's drivers can be called back from a wait. SQLite's waits in a thread, for as long as its connection
    was told to (`timeout`, 5 s); one that is given up gets the lock in the end, and nobody gives it back. So it is
    waited for, also where the call is cancelled.

    Raises:
        Unclear: the time was over; it was cancelled, and its transaction is to be rolled back.
    """
    entering = session.run_sync(work, *args, **kw)
    if session.get_bind(clause=BARRIER).dialect.name != "postgresql":
        return await _to_its_end(entering)
    bound = asyncio.timeout(_bound_s(call))
    try:
        async with bound:
            return await entering
    except TimeoutError as problem:
        if not bound.expired():
            raise
        raise Unclear(
            f"a copy of this call is running, or the database is slow (key {call.step.key}): nothing was done for this "
            "call by its deadline; ask again"
        ) from problem


async def _to_its_end(entering: Coroutine[Any, Any, T]) -> T:  # Any: what a coroutine sends is its own business
    task = asyncio.create_task(entering, name="amends-barrier-enter")
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # read, since nobody else does
        raise


def _bound_s(call: GuardedCall) -> float | None:
    remaining_s = call.step.time_remaining()
    return None if remaining_s is None else max(remaining_s - min(ANSWER_S, remaining_s / 4), 0.001)
