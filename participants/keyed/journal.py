"""A service's journal of the calls that reached it: what the service saw, whatever the coordinator believes."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NewType

from sqlalchemy import Boolean, Column, Engine, Integer, MetaData, String, Table, insert, update

from keyed.database import utc_now

if TYPE_CHECKING:
    from sqlalchemy import Connection, Update

    from amends import StepContext

EntryId = NewType("EntryId", int)


class CallOutcome(StrEnum):
    """How a call ended, as the service saw it."""

    DONE = "done"
    REPLAYED = "replayed"
    REFUSED = "refused"
    NOT_FOUND = "not_found"
    KEY_REUSED = "key_reused"
    CANCELLED = "cancelled"
    FAILED = "failed"


def call_journal_table(tables: MetaData) -> Table:
    """Declares the table `call_journal` among a service's tables."""
    return Table(
        "call_journal",
        tables,
        Column("entry_id", Integer, primary_key=True, comment="Counts the calls in the order in which they came."),
        Column("begin_time", String, nullable=False, comment="When the call came, ISO 8601 in UTC."),
        Column("end_time", String, comment="When it was answered or given up. Null: neither was seen."),
        Column("method", String, nullable=False, comment="Name of the method."),
        Column("ledger", String, nullable=False, comment="Name of the coordinator's ledger."),
        Column("key", String, nullable=False, comment="The idempotency key."),
        Column("saga_id", String, nullable=False, comment="The saga."),
        Column("step", String, nullable=False, comment="The step."),
        Column("attempt", Integer, nullable=False, comment="Number of the attempt, from 1."),
        Column("direction", String, nullable=False, comment="action, compensation or lookup."),
        Column("outcome", String, comment="How it ended. Null: the end was not seen."),
        Column("effect_made", Boolean, nullable=False, comment="Whether this very call changed the service's data."),
    )


class Journal:
    """Writes the journal. Beginning and end are transactions of their own; the effect is marked within the work's."""

    def __init__(self, engine: Engine, table: Table) -> None:
        self._engine, self._table = engine, table

    def begin(self, method: str, step: StepContext) -> EntryId:
        """Writes down that a call came, before anything is done for it."""
        entry = insert(self._table).values(
            begin_time=utc_now(),
            method=method,
            ledger=step.ledger,
            key=step.key,
            saga_id=step.saga_id,
            step=step.step,
            attempt=step.attempt,
            direction=step.direction.value,
            effect_made=False,
        )
        with self._engine.begin() as connection:
            key: tuple[int, ...] | None = connection.execute(entry).inserted_primary_key
        if key is None:
            raise RuntimeError("the journal's row got no id: call_journal.entry_id must be its integer primary key")
        return EntryId(key[0])

    def mark_effect(self, connection: Connection, entry: EntryId) -> None:
        """Writes down that this call changed the data, in the transaction that changes them."""
        connection.execute(self._update(entry).values(effect_made=True))

    def end(self, entry: EntryId, outcome: CallOutcome) -> None:
        """Writes down how the call ended."""
        ended = self._update(entry).values(end_time=utc_now(), outcome=outcome.value)
        with self._engine.begin() as connection:
            connection.execute(ended)

    def _update(self, entry: EntryId) -> Update:
        return update(self._table).where(self._table.c.entry_id == entry)
