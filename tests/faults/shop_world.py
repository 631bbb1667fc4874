"""The shop as a world of the fault matrix: its real services, each on a database of its own, and what must stand."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from amends import Committed
from amends.testing import FaultMatrix
from hosting.database import open_database
from hosting.serving import database_path
from shop.cards.books import Books
from shop.cards.client import InProcess
from shop.cards.provider import CardProvider
from shop.demo.books import THINGS, read_books
from shop.money.v1.money_pb2 import Money
from shop.orders.v1.orders_pb2 import PlaceOrder
from shop.payments.service import PAYMENTS, payments_at
from shop.process import SERVICES
from shop.saga import order
from tests.faults.folders import new_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from amends.testing import End
    from hosting.database import Database
    from hosting.serving import Service
    from shop.cards.client import Wire
    from shop.demo.books import Books as ShopBooks

TEAPOT = PlaceOrder(
    customer_id="alice",
    sku="teapot",
    quantity=1,
    total=Money(currency_code="EUR", minor_units=2_500),
    country="Germany",
    email="alice@example.org",
)


class ShopWorld:
    """The shop's five services, and its card provider, which no fault of ours reaches.

    Attributes:
        cards: the way to the card provider.
    """

    cards: Wire

    def __init__(self) -> None:
        self._left = AsyncExitStack()
        self._data = Path()

    async def __aenter__(self) -> Self:
        self._data = Path(self._left.enter_context(new_folder()))
        books = Books(database_path(self._data, "cards"))
        self._left.callback(books.close)
        self.cards = InProcess(CardProvider(books))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._left.aclose()

    def participants(self) -> Mapping[str, Sequence[object]]:
        """The services by their participants' names."""
        services = {**SERVICES, PAYMENTS: payments_at(self.cards)}
        return {name: (self.servicer(name, service, self._open(name, service)),) for name, service in services.items()}

    def servicer(self, name: str, service: Service, database: Database) -> object:
        """What answers the calls of one participant."""
        return service.servicer(database)

    async def check(self, end: End) -> None:
        """What is true of the shop, whatever went wrong: all of an order stands or nothing, and no stock is gone."""
        books = self.books()
        standing = [row.thing for row in books.standing]
        expected = 1 if isinstance(end, Committed) else 0
        for thing in THINGS:
            assert standing.count(thing.name) == expected, f"{standing.count(thing.name)} of {thing.name} stand"
        assert not any(books.stock_gaps.values()), f"pieces of stock are neither free nor held: {books.stock_gaps}"

    def books(self) -> ShopBooks:
        """What the services' and the provider's databases say."""
        return read_books(self._data)

    def _open(self, name: str, service: Service) -> Database:
        database = open_database(database_path(self._data, name), service.tables)
        self._left.push_async_callback(database.close)
        service.prepare(database.engine)
        return database


ORDER = FaultMatrix(order, input=TEAPOT, world=ShopWorld)
