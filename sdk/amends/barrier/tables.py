"""The barrier's tables, which live in the participant's own database beside its work.

barrier.TABLES.create_all(engine)                          # or, with Alembic:
target_metadata = [Base.metadata, barrier.TABLES]
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, DateTime, Index, LargeBinary, MetaData, SmallInteger, Table, Text, func

TABLES = MetaData()
"""Everything that the barrier keeps; give it to `create_all`, or to Alembic as one more `target_metadata`."""

BARRIER = Table(
    "amends_barrier",
    TABLES,
    Column("ledger", Text, primary_key=True, comment="the coordinator's ledger; keys are unique within it"),
    Column("key", Text, primary_key=True, comment="the idempotency key of an action or a compensation"),
    Column("saga", Text, nullable=False, comment="the saga's id"),
    Column("step", Text, nullable=False, comment="the step's name"),
    Column("direction", Text, nullable=False, comment="action or compensation"),
    Column("method", Text, nullable=False, comment="package.Service/Method; empty where only a mark was left"),
    Column("state", Text, nullable=False, comment="running, started, done, rejected, null or undone"),
    Column("request_hash", LargeBinary, comment="SHA-256 of the method and the request's bytes; null in a mark"),
    Column("response", LargeBinary, comment="the response's bytes, once it is done"),
    Column("abort_reason", LargeBinary, comment="UTF-8: done, but the saga is to be rolled back"),
    Column("code", Text, comment="of a recorded refusal, such as FAILED_PRECONDITION"),
    Column("message", Text, comment="of a recorded refusal, for people"),
    Column("reason", Text, comment="of a recorded refusal, for programs"),
    Column(
        "step_time",
        DateTime(timezone=True),
        nullable=False,
        comment="UTC, by the ledger's clock: the action's first attempt; rows are purged by it",
    ),
    Column("create_time", DateTime(timezone=True), nullable=False, server_default=func.now(), comment="for people"),
    Index("amends_barrier_step_time", "step_time"),
    comment="one row for every key that ran, was refused for good, or must never run",
)

HORIZON = Table(
    "amends_barrier_horizon",
    TABLES,
    Column("id", SmallInteger, CheckConstraint("id = 1"), primary_key=True, autoincrement=False),
    Column(
        "forgotten_before",
        DateTime(timezone=True),
        nullable=False,
        comment="UTC: of steps older than this nothing may be known any more",
    ),
    comment="at most one row: how far back the barrier remembers",
)
