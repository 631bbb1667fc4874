"""A service's memory of the idempotency keys it has answered, kept in the same transaction as the work."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import Column, LargeBinary, MetaData, String, Table, insert, select

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from sqlalchemy import Connection


class KeyReusedError(Exception):
    """The key was answered before, for another request. The caller must not take the old answer for its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallIdentity:
    """What makes two calls the same call: keys are unique within one ledger."""

    ledger: str
    key: str
    method: str
    request_hash: bytes


def answered_call_table(tables: MetaData) -> Table:
    """Declares the table `answered_call` among a service's tables."""
    return Table(
        "answered_call",
        tables,
        Column("ledger", String, primary_key=True, comment="Name of the coordinator's ledger; keys are scoped by it."),
        Column("key", String, primary_key=True, comment="The idempotency key."),
        Column("method", String, nullable=False, comment="Name of the method that was called."),
        Column("request_hash", LargeBinary, nullable=False, comment="SHA-256 of the request."),
        Column("response", LargeBinary, nullable=False, comment="The response, as it was sent."),
        Column("answer_time", String, nullable=False, comment="When the work was done, ISO 8601 in UTC."),
    )


def request_hash(request: Message) -> bytes:
    """A digest of the request that is equal for equal requests."""
    return hashlib.sha256(request.SerializeToString(deterministic=True)).digest()


class Memory:
    """Recalls and remembers answers; every method runs in the caller's transaction."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def recall(self, connection: Connection, call: CallIdentity) -> bytes | None:
        """The stored response of this very call, or None if the key is new.

        Raises:
            KeyReusedError: the key was answered for another request or method.
        """
        answered = self._table.c
        row = connection.execute(
            select(answered.method, answered.request_hash, answered.response).where(
                answered.ledger == call.ledger, answered.key == call.key
            )
        ).one_or_none()
        if row is None:
            return None
        if (row.method, row.request_hash) != (call.method, call.request_hash):
            raise KeyReusedError(
                f"idempotency key {call.key!r} was used before for another request of {row.method}; "
                "nothing was done: send the first request again, or choose a new key"
            )
        response: bytes = row.response
        return response

    def remember(self, connection: Connection, call: CallIdentity, response: bytes) -> None:
        """Stores the response, so that the next call with this key gets it without any work."""
        connection.execute(
            insert(self._table).values(
                ledger=call.ledger,
                key=call.key,
                method=call.method,
                request_hash=call.request_hash,
                response=response,
                answer_time=datetime.now(UTC).isoformat(timespec="microseconds"),
            )
        )
