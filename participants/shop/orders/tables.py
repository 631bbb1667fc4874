"""The tables of the orders service."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table

TABLES = MetaData()

PLACED = "placed"
CANCELLED = "cancelled"

customer_order = Table(
    "customer_order",
    TABLES,
    Column("order_id", String, primary_key=True, comment="Its id."),
    Column("customer_id", String, nullable=False, comment="Who ordered."),
    Column("sku", String, nullable=False, comment="What was ordered."),
    Column("quantity", Integer, nullable=False, comment="How many of it."),
    Column("total_minor_units", BigInteger, nullable=False, comment="What the customer pays, in the smallest unit."),
    Column("currency_code", String, nullable=False, comment="ISO 4217 code of the currency."),
    Column("state", String, nullable=False, comment="placed or cancelled."),
    Column("saga_id", String, nullable=False, comment="The saga that made it."),
)
