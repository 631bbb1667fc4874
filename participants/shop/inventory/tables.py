"""The tables of the inventory service, and the stock that a new shop begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import CheckConstraint, Column, Engine, ForeignKey, Integer, MetaData, String, Table
from sqlalchemy.dialects.sqlite import insert

if TYPE_CHECKING:
    from collections.abc import Mapping

TABLES = MetaData()

HELD = "held"
RELEASED = "released"

FIRST_STOCK: Mapping[str, int] = {"teapot": 20, "kettle": 10}

stock = Table(
    "stock",
    TABLES,
    Column("sku", String, primary_key=True, comment="The article."),
    Column("delivered_count", Integer, nullable=False, comment="How many were ever put on the shelf."),
    Column(
        "free_count", Integer, CheckConstraint("free_count >= 0"), nullable=False, comment="How many nobody reserved."
    ),
)

reservation = Table(
    "reservation",
    TABLES,
    Column("reservation_id", String, primary_key=True, comment="Its id."),
    Column("sku", String, ForeignKey("stock.sku"), nullable=False, comment="The article."),
    Column("quantity", Integer, nullable=False, comment="How many of it."),
    Column("state", String, nullable=False, comment="held or released."),
    Column("saga_id", String, nullable=False, comment="The saga that made it."),
)


def fill_shelves(engine: Engine, articles: Mapping[str, int]) -> None:
    """Puts articles on the shelf that were never there; what is there already stays as it is."""
    delivered = [{"sku": sku, "delivered_count": count, "free_count": count} for sku, count in articles.items()]
    with engine.begin() as connection:
        connection.execute(insert(stock).on_conflict_do_nothing(), delivered)
