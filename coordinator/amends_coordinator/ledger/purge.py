"""What retention removes of sagas that ended long ago. Runs in a transaction of its own, and may run more than once:
what was emptied is not found again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, select, text, update

from amends_coordinator.ledger import schema

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from amends_coordinator.core.ids import Instant


def purge(connection: Connection, *, ended_before: Instant, limit: int) -> int:
    """Empty the sagas that ended first, at most `limit` of those that ended before an instant; answers how many. Rows
    that somebody keeps locked are left out.
    """
    saga = schema.saga
    over = (
        select(saga.c.id)
        .where(text(schema.UNPURGED), saga.c.ended_time < ended_before)
        .order_by(saga.c.ended_time)
        .limit(limit)
        .with_for_update(key_share=True, skip_locked=True)
    )
    ids = connection.execute(over).scalars().all()
    if not ids:
        return 0
    for table in (schema.intent, schema.saga_label, schema.saga_participant):
        connection.execute(delete(table).where(table.c.saga_id.in_(ids)))
    letters = schema.dead_letter
    connection.execute(update(letters).where(letters.c.saga_id.in_(ids)).values(last_error=""))
    row: dict[str, object] = {
        "purged": True,
        "input": b"",
        "output": None,
        "failure_message": "",
        "version": saga.c.version + 1,
    }
    connection.execute(update(saga).where(saga.c.id.in_(ids)).values(row))
    return len(ids)
