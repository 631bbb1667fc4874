"""Starts one service of the shop as a process: `python -m shop.process payments --coordinator HOST:PORT --data DIR`."""

from __future__ import annotations

import argparse
import asyncio
from functools import partial
from typing import TYPE_CHECKING

from hosting.serving import Service, add_place, place_of, run
from shop.cards.client import Http
from shop.inventory.service import Inventory
from shop.inventory.tables import FIRST_STOCK, fill_shelves
from shop.inventory.tables import TABLES as INVENTORY_TABLES
from shop.notifications.service import Notifications
from shop.notifications.tables import TABLES as NOTIFICATIONS_TABLES
from shop.orders.service import Orders
from shop.orders.tables import TABLES as ORDERS_TABLES
from shop.payments.service import PAYMENTS, payments_at
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
    "shipping": Service(SHIPPING_TABLES, lambda database: Shipping(database.sessions)),
    "notifications": Service(NOTIFICATIONS_TABLES, lambda database: Notifications(database.plain_sessions)),
}
"""The services by name, which is also the participant's. Beside them there is payments, which needs a provider."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line and serves."""
    parser = argparse.ArgumentParser(prog="python -m shop.process", description="Runs one service of the shop.")
    parser.add_argument("service", choices=sorted([*SERVICES, PAYMENTS]))
    parser.add_argument("--cards", metavar="HOST:PORT", help="where payments finds the card provider (shop.cards)")
    add_place(parser)
    chosen = parser.parse_args(arguments)
    if chosen.service == PAYMENTS and not chosen.cards:
        parser.error("payments needs --cards HOST:PORT, where `python -m shop.cards` says that it listens")
    services = SERVICES if chosen.service != PAYMENTS else {PAYMENTS: payments_at(Http(chosen.cards))}
    asyncio.run(run(chosen.service, services[chosen.service], place_of(chosen)))


if __name__ == "__main__":
    main()
