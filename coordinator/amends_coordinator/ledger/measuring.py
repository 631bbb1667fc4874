"""What stands in the ledger just now, in a few questions along indexes: none of them looks at sagas that have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import false, func, select, text, true

from amends_coordinator.core.states import SagaState
from amends_coordinator.ledger import schema
from amends_coordinator.ports.ledger import Measures

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from amends_coordinator.core.ids import Instant
    from amends_coordinator.ledger.memory_store import Record

UNFINISHED_STATES = tuple(state for state in SagaState if not state.ended)


def measure(connection: Connection, now: Instant) -> Measures:
    """See the port."""
    saga, letter = schema.saga, schema.dead_letter
    unfinished = saga.c.state.in_([state.value for state in UNFINISHED_STATES])
    by_state = connection.execute(select(saga.c.state, func.count()).where(unfinished).group_by(saga.c.state))
    counts = {SagaState(state): count for state, count in by_state}
    open_letters = select(func.count(), func.min(letter.c.opened_time)).where(letter.c.closed_time.is_(None))
    open_count, oldest_open_time = connection.execute(open_letters).one()
    compensating = select(func.min(saga.c.failure_time)).where(saga.c.state == SagaState.COMPENSATING.value)
    return Measures(
        unfinished={state: counts.get(state, 0) for state in UNFINISHED_STATES},
        open_dead_letter_count=open_count,
        oldest_open_time=oldest_open_time,
        oldest_due_time=_oldest_due_time(connection, now),
        oldest_compensating_time=connection.execute(compensating).scalar(),
    )


def _oldest_due_time(connection: Connection, now: Instant) -> Instant | None:
    """Along the index that claims use: of the sagas that go first, then of the others."""
    saga = schema.saga
    oldest = (
        connection.execute(
            select(saga.c.due_time)
            .where(text(schema.ACTIVE), saga.c.goes_first == first, saga.c.due_time <= now, saga.c.owner.is_(None))
            .order_by(saga.c.due_time)
            .limit(1)
        ).scalar()
        for first in (true(), false())
    )
    return _oldest(oldest)


def measures_of(records: Iterable[Record], now: Instant) -> Measures:
    """The same of a ledger in memory."""
    stored = [record.stored for record in records]
    sagas = [each.saga for each in stored]
    letters = [letter.opened_time for saga in sagas for letter in saga.dead_letters if letter.closed_time is None]
    due_times = [each.saga.due_time for each in stored if each.owner is None and each.saga.due_time is not None]
    compensating = (saga for saga in sagas if saga.state is SagaState.COMPENSATING)
    return Measures(
        unfinished={state: sum(saga.state is state for saga in sagas) for state in UNFINISHED_STATES},
        open_dead_letter_count=len(letters),
        oldest_open_time=_oldest(letters),
        oldest_due_time=_oldest(time for time in due_times if time <= now),
        oldest_compensating_time=_oldest(saga.failure.time for saga in compensating if saga.failure is not None),
    )


def _oldest(times: Iterable[Instant | None]) -> Instant | None:
    return min((time for time in times if time is not None), default=None)
