"""The outbox's two tables, in the participant's own database.

Rows are only ever inserted by `publish` and deleted once they are delivered, so an idle outbox is empty. Whoever wants
to know what is held up reads it: `attempt_count` and `last_error` say which events a broker didn't take, and why.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    DateTime,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

TABLES = MetaData()
"""`TABLES.create_all(engine)` makes them; for Alembic it is one more `target_metadata`."""


OUTBOX = Table(
    "amends_outbox",
    TABLES,
    # Grows in the order of the commits of one key (see `writing`); between keys it says nothing.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("event_id", String(36), nullable=False, unique=True),
    Column("topic", String, nullable=False),
    Column("key", String, nullable=False),
    Column("type_name", String, nullable=False),
    Column("content_type", String, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("headers", JSON, nullable=False),
    Column("saga_id", String),
    Column("step", String),
    Column("create_time", DateTime(timezone=True), nullable=False),  # UTC
    Column("attempt_count", Integer, nullable=False, default=0),  # attempts that the broker refused
    Column("last_error", Text),
    Index("amends_outbox_key", "key", "id"),
    # A number is never given twice, also after the newest row was deleted.
    sqlite_autoincrement=True,
)

RELAY = Table(
    "amends_outbox_relay",
    TABLES,
    Column("name", String, primary_key=True),
    # Whose turn it is to deliver, and until when (seconds since 1970, by the database's clock).
    Column("holder", String, nullable=False),
    Column("expire_s", Float(53), nullable=False),
)
