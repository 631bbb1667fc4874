"""Starts one service of the shop as a process: `python -m shop.process payments --coordinator HOST:PORT --data DIR`."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from amends import ParticipantServer
from shop.calls import KeyedCalls
from shop.database import open_database
from shop.holds import ReplyHold
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
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import MetaData


@dataclass(frozen=True, slots=True)
class Service:
    """What it takes to run one of the services."""

    tables: MetaData
    servicer: Callable[[KeyedCalls], object]


SERVICES: Mapping[str, Service] = {
    "orders": Service(ORDERS_TABLES, Orders),
    "inventory": Service(INVENTORY_TABLES, Inventory),
    "payments": Service(PAYMENTS_TABLES, Payments),
    "shipping": Service(SHIPPING_TABLES, Shipping),
    "notifications": Service(NOTIFICATIONS_TABLES, Notifications),
}


def database_path(data: Path, name: str) -> Path:
    """Where a service keeps its database."""
    return data / f"{name}.db"


async def run_service(name: str, *, coordinator: str, port: int, data: Path, holds: Sequence[ReplyHold]) -> None:
    """Serves until the process is told to stop.

    Arguments:
        name: one of `SERVICES`; also the participant's name.
        coordinator: where the service announces itself, as HOST:PORT.
        port: where it listens on the loopback interface; 0 takes a free one.
        data: the folder of its database.
        holds: planted faults, see `shop.holds`.
    """
    service = SERVICES[name]
    engine = open_database(database_path(data, name), service.tables)
    try:
        if name == "inventory":
            fill_shelves(engine, FIRST_STOCK)
        server = ParticipantServer(name, coordinator=coordinator, port=port)
        server.add(service.servicer(KeyedCalls(engine, service.tables, holds=holds)))
        await server.serve()
    finally:
        engine.dispose()


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line and serves."""
    parser = argparse.ArgumentParser(prog="python -m shop.process", description="Runs one service of the shop.")
    parser.add_argument("service", choices=sorted(SERVICES))
    parser.add_argument("--coordinator", required=True, metavar="HOST:PORT", help="where to announce the service")
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="folder of the service's database")
    parser.add_argument("--port", type=int, default=0, help="port on the loopback interface (default: a free one)")
    parser.add_argument(
        "--hold-reply",
        type=_hold,
        action="append",
        default=[],
        metavar="METHOD:FIELD=VALUE:SECONDS",
        help="make the effect, but hold the first attempt's reply back; may be repeated",
    )
    chosen = parser.parse_args(arguments)
    asyncio.run(
        run_service(
            chosen.service,
            coordinator=chosen.coordinator,
            port=chosen.port,
            data=chosen.data,
            holds=chosen.hold_reply,
        )
    )


def _hold(text: str) -> ReplyHold:
    try:
        return ReplyHold.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


if __name__ == "__main__":
    main()
