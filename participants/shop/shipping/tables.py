"""The tables of the shipping service."""

from __future__ import annotations

from sqlalchemy import Column, MetaData, String, Table

TABLES = MetaData()

shipment = Table(
    "shipment",
    TABLES,
    Column("shipment_id", String, primary_key=True, comment="Its id."),
    Column("order_id", String, nullable=False, comment="The order that the parcel belongs to."),
    Column("reservation_id", String, nullable=False, comment="The reserved units that are in it."),
    Column("country", String, nullable=False, comment="The country that it goes to."),
    Column("saga_id", String, nullable=False, comment="The saga that sent it."),
)
