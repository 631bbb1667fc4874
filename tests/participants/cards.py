"""The card provider for tests: in this process, or as one that can be killed; and what its books say."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from shop.cards.books import Books
from shop.cards.client import Http, InProcess
from shop.cards.faults import PlantedFault, PlantedFaults
from shop.cards.provider import CardProvider
from shop.cards.serving import CardServer
from shop.demo.books import query
from tests.scenarios.processes import Process
from tests.waiting import pause

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from shop.demo.books import Row

BOUND_S = 20.0


@contextmanager
def provider_here(data: Path) -> Generator[InProcess]:
    """The way to a provider in this process, without a network."""
    books = Books(data / "cards.db")
    try:
        yield InProcess(CardProvider(books))
    finally:
        books.close()


@contextmanager
def provider_over_http(data: Path, *faults: str) -> Generator[Http]:
    """The way to a provider that a thread of this process serves."""
    books = Books(data / "cards.db")
    planted = PlantedFaults.of(map(PlantedFault.parse, faults))
    with CardServer(CardProvider(books), planted) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            yield Http(f"127.0.0.1:{server.port}")
        finally:
            planted.let_go()
            server.shutdown()
            serving.join(BOUND_S)
    books.close()


def provider_process(data: Path, *faults: str) -> Process:
    """The provider as a process; started again, it listens on the port that it had, and its faults happen again."""
    options = [option for fault in faults for option in ("--fault", fault)]
    return Process(["shop.cards", "--data", str(data), "--port", "{port}", *options], {}, data / "cards.log")


async def held(wire: Http, *points: str) -> None:
    """Wait until the provider holds a request at each of these points."""
    while not set(points) <= set(await held_at(wire)):
        await pause()


async def held_at(wire: Http) -> list[str]:
    """Where the provider holds requests now."""
    points = (await wire.get("held")).fields["held"]
    return cast("list[str]", points)


def card_rows(data: Path, sql: str) -> list[Row]:
    """The rows of a query on the provider's books."""
    return query(data / "cards.db", sql)
