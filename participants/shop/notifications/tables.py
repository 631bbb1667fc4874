"""The tables of the notifications service."""

from __future__ import annotations

from sqlalchemy import Column, MetaData, String, Table

TABLES = MetaData()

message = Table(
    "message",
    TABLES,
    Column("message_id", String, primary_key=True, comment="Its id."),
    Column("email", String, nullable=False, comment="The customer's address."),
    Column("template", String, nullable=False, comment="Name of the letter's template."),
    Column("order_id", String, nullable=False, comment="The order that it is about."),
    Column("saga_id", String, nullable=False, comment="The saga that sent it."),
)
