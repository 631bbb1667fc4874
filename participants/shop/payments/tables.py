"""The tables of the payments service."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, MetaData, String, Table

from keyed.calls import declare_call_tables

TABLES = declare_call_tables(MetaData())

AUTHORIZED = "authorized"
VOIDED = "voided"
CAPTURED = "captured"

authorization = Table(
    "authorization",
    TABLES,
    Column("authorization_id", String, primary_key=True, comment="Its id."),
    Column("customer_id", String, nullable=False, comment="Whose card."),
    Column("minor_units", BigInteger, nullable=False, comment="How much, in the smallest unit."),
    Column("currency_code", String, nullable=False, comment="ISO 4217 code of the currency."),
    Column("statement_text", String, nullable=False, comment="What the customer reads on the statement."),
    Column("state", String, nullable=False, comment="authorized, voided or captured."),
    Column("saga_id", String, nullable=False, comment="The saga that made it."),
    Column("action_key", String, nullable=False, comment="The idempotency key that made it."),
)

charge = Table(
    "charge",
    TABLES,
    Column("charge_id", String, primary_key=True, comment="Its id."),
    Column(
        "authorization_id",
        String,
        ForeignKey("authorization.authorization_id"),
        nullable=False,
        comment="What it was taken from.",
    ),
    Column("saga_id", String, nullable=False, comment="The saga that made it."),
)
