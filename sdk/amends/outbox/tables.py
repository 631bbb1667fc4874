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
    Column(
        "id",
        BigInteger().with_variant(Integer, "sqlite"),
        primary_key=True,
        autoincrement=True,
        comment="grows in the order of the commits of one key; between keys it says nothing",
    ),
    Column("event_id", String(36), nullable=False, unique=True, comment="a UUID, the same with every delivery"),
    Column("topic", String, nullable=False, comment="where it is published"),
    Column("key", String, nullable=False, comment="what it is about: its events are delivered in order"),
    Column("type_name", String, nullable=False, comment="of the protobuf message; empty for bytes"),
    Column("content_type", String, nullable=False, comment="of the payload"),
    Column("payload", LargeBinary, nullable=False, comment="what is published"),
    Column("headers", JSON, nullable=False, comment="names and values that are sent with it"),
    Column("saga_id", String, comment="the saga whose step published it; null: it was no step"),
    Column("step", String, comment="the step's name"),
    Column("create_time", DateTime(timezone=True), nullable=False, comment="UTC, by the participant's clock"),
    Column("attempt_count", Integer, nullable=False, default=0, comment="how often the broker did not take it"),
    Column("last_error", Text, comment="why it did not, the last time"),
    Index("amends_outbox_key", "key", "id"),
    comment="events that are not delivered yet",
    # A number is never given twice, also after the newest row was deleted.
    sqlite_autoincrement=True,
)

RELAY = Table(
    "amends_outbox_relay",
    TABLES,
    Column("name", String, primary_key=True, comment="there is one"),
    Column("holder", String, nullable=False, comment="whose turn it is to deliver"),
    Column("expire_s", Float(53), nullable=False, comment="until when: seconds since 1970, by the database's clock"),
    comment="which of several relays delivers",
)
