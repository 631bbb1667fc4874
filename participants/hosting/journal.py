"""A service's journal of the calls that reached it: what the service saw, whatever the coordinator believes.

It stands around the service and knows nothing of it. A call gets its row before anything is done for it, and the
status code that it is answered with after everything is done and before the answer leaves, each in a transaction of its
own. Whether it changed the service's tables is written within the very transaction that changes them.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NewType

import grpc
from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    CursorResult,
    Engine,
    Insert,
    Integer,
    MetaData,
    String,
    Table,
    Update,
    event,
    insert,
    update,
)
from sqlalchemy.sql.dml import UpdateBase

from amends import NotInStep, StepContext

if TYPE_CHECKING:
    from google.protobuf.message import Message

EntryId = NewType("EntryId", int)

TABLES = MetaData()

call_journal = Table(
    "call_journal",
    TABLES,
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
    Column("outcome", String, comment="Name of the gRPC status code that it ended with. Null: the end was not seen."),
    Column("effect_made", Boolean, nullable=False, comment="Whether this very call changed the service's data."),
)

_current_entry: ContextVar[EntryId] = ContextVar("call_journal_entry")


class Journal(grpc.aio.ServerInterceptor):
    """Writes down every step's call that passes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:  # Any: as in gRPC's stubs
        """Stands around the handler of one call."""
        handler = await continuation(handler_call_details)
        try:
            step = StepContext.from_metadata(handler_call_details.invocation_metadata)
        except NotInStep:
            return handler
        method = handler_call_details.method.rpartition("/")[2]

        async def journalled(request: Message, context: grpc.aio.ServicerContext[Any, Any]) -> Message:
            entry = await asyncio.to_thread(self._begin, method, step)
            token = _current_entry.set(entry)
            try:
                response: Message = await handler.unary_unary(request, _TellingContext(context, self, entry))
            except asyncio.CancelledError:
                await self.end(entry, grpc.StatusCode.CANCELLED)
                raise
            finally:
                _current_entry.reset(token)
            await self.end(entry, grpc.StatusCode.OK)
            return response

        return grpc.unary_unary_rpc_method_handler(
            journalled,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    async def end(self, entry: EntryId, code: grpc.StatusCode) -> None:
        """Writes down what a call is answered with."""
        await asyncio.to_thread(self._end, entry, code)

    def _begin(self, method: str, step: StepContext) -> EntryId:
        entry = insert(call_journal).values(
            begin_time=_now(),
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

    def _end(self, entry: EntryId, code: grpc.StatusCode) -> None:
        with self._engine.begin() as connection:
            connection.execute(_change(entry, end_time=_now(), outcome=code.name))


def watch_changes(engine: Engine, tables: MetaData) -> None:
    """Has each call of a `Journal` marked that changes one of these tables through the engine."""

    def mark(
        connection: Connection,
        statement: object,
        multiple: object,
        parameters: object,
        options: object,
        result: CursorResult[Any],  # Any: rows of whatever shape
    ) -> None:
        if not isinstance(statement, UpdateBase) or statement.table not in tables.tables.values():
            return
        entry = _current_entry.get(None)
        if entry is not None and (isinstance(statement, Insert) or result.rowcount > 0):
            connection.execute(_change(entry, effect_made=True))

    event.listen(engine, "after_execute", mark)


def _change(entry: EntryId, **values: object) -> Update:
    return update(call_journal).where(call_journal.c.entry_id == entry).values(values)


class _TellingContext:
    """A call's context that has a refusal written down before it is sent."""

    def __init__(self, context: grpc.aio.ServicerContext[Any, Any], journal: Journal, entry: EntryId) -> None:
        self._context, self._journal, self._entry = context, journal, entry

    def __getattr__(self, name: str) -> Any:  # Any: whatever the context has
        return getattr(self._context, name)

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: tuple[Any, ...] = ()) -> None:
        """Write it down, and send it."""
        await self._journal.end(self._entry, code)
        await self._context.abort(code, details, trailing_metadata)


def _now() -> str:
    """This instant as ISO 8601 text in UTC; it sorts as text the way it sorts in time."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
