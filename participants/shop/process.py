"""Starts one service of the shop as a process: `python -m shop.process payments --coordinator HOST:PORT --data DIR`."""

from __future__ import annotations

import argparse
import asyncio
from functools import partial
from typing import TYPE_CHECKING

from hosting.serving import Service, add_place, place_of, run
from keyed.calls import KeyedCalls
from shop.inventory.service import Inventory
from shop.inventory.tables import FIRST_STOCK, fill_shelves
from shop.inventory.tables import TABLES as INVENTORY_TABLES
from shop.notifications.service import Notifications
from shop.notifications.tables import TABLES as NOTIFICATIONS_TABLES
from shop.orders.service import Orders
from shop.orders.tables import TABLES as ORDERS_TABLES
from shop.payments.service import Payments
from shop.payments.tables import TABLES as PAYMENTS_TABLES
from shop.shipping.service import Shipping
from shop.shipping.tables import TABLES as SHIPPING_TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SERVICES: Mapping[str, Service] = {
    "orders": Service(ORDERS_TABLES, lambda database: Orders(database.sessions)),
    "inventory": Service(
        INVENTORY_TABLES,
        lambda database: Inventory(database.sessions),
        partial(fill_shelves, articles=FIRST_STOCK),
    ),
    "payments": Service(PAYMENTS_TABLES, lambda database: Payments(KeyedCalls(database.engine, PAYMENTS_TABLES))),
    "shipping": Service(SHIPPING_TABLES, lambda database: Shipping(database.sessions)),
    "notifications": Service(NOTIFICATIONS_TABLES, lambda database: Notifications(database.plain_sessions)),
}
"""The services by name, which is also the participant's."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line and serves."""
    parser = argparse.ArgumentParser(prog="python -m shop.process", description="Runs one service of the shop.")
    parser.add_argument("service", choices=sorted(SERVICES))
    add_place(parser)
    chosen = parser.parse_args(arguments)
    asyncio.run(run(chosen.service, SERVICES[chosen.service], place_of(chosen)))


if __name__ == "__main__":
    main()
