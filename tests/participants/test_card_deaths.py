"""Payments and its card provider are killed at every point of an effect; afterwards the provider's books and the sagas'
ends agree.

The points of an action and of a compensation:

    begin       payments has got the call, and nothing is written down
    before      it is written down that the effect begins; the provider has got the request, and done nothing
    after       the provider has done its part, and nobody has heard of it
    end         it is written down that it is done, and the coordinator has not heard of it

Each saga is held at another point, and the process dies with all of them in hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from amends import Saga, SagaClient
from amends.v1 import saga_pb2
from shop.cards.client import Http
from shop.money.v1.money_pb2 import Money
from shop.payments.v1.payments_pb2 import AuthorizeRequest
from shop.saga import Authorize, Capture, Void
from tests.participants.cards import card_rows, held, held_at, provider_process
from tests.scenarios.processes import Process, coordinator
from tests.waiting import pause

pytestmark = [pytest.mark.crash, pytest.mark.slow]

BOUND_S = 90.0
CALL_TIMEOUT = timedelta(seconds=60)
COMMITTED, COMPENSATED = saga_pb2.Saga.STATE_COMMITTED, saga_pb2.Saga.STATE_COMPENSATED

paid = Saga("paid", input=AuthorizeRequest)
authorize = paid.step(
    "authorize", Authorize(customer_id=paid.input.customer_id, amount=paid.input.amount), timeout=CALL_TIMEOUT
)
authorize.compensated_by(Void(reason="order failed"), timeout=CALL_TIMEOUT)
paid.retriable("capture", Capture(authorization_id=authorize.response.authorization_id), timeout=CALL_TIMEOUT)

# The second authorisation is declined, so the first one is undone.
unpaid = Saga("unpaid", input=AuthorizeRequest)
first = unpaid.step(
    "first", Authorize(customer_id=unpaid.input.customer_id, amount=unpaid.input.amount), timeout=CALL_TIMEOUT
)
first.compensated_by(Void(reason="order failed"), timeout=CALL_TIMEOUT)
unpaid.step("second", Authorize(amount=Money(minor_units=100_001))).compensated_by(Void(reason="order failed"))

WANTED = AuthorizeRequest(customer_id="ada", amount=Money(currency_code="EUR", minor_units=4_200))

THINGS = {"Authorize": "authorizations", "Void": "voids", "Capture": "captures"}


@dataclass(frozen=True, slots=True)
class Point:
    """Where a saga is held, and how it has to end.

    Attributes:
        method: of payments.
        moment: see above.
        aborted: the saga is aborted when payments is dead, so that what was begun is undone.
    """

    method: str
    moment: str
    aborted: bool = False

    @property
    def saga_id(self) -> str:
        """The saga's id."""
        return f"{self.method.lower()}-{self.moment}{'-aborted' if self.aborted else ''}"

    @property
    def is_at_the_provider(self) -> bool:
        """Whether it is the provider that holds it."""
        return self.moment in {"before", "after"}

    @property
    def name(self) -> str:
        """As whoever holds it calls it."""
        if self.is_at_the_provider:
            return f"{THINGS[self.method]}:reference={self.saga_id}:{self.moment}"
        return f"{self.saga_id}:{self.method}:{self.moment}"

    @property
    def end(self) -> saga_pb2.Saga.State.ValueType:
        """How the saga has to end."""
        return COMPENSATED if self.aborted or self.method == "Void" else COMMITTED

    @property
    def books(self) -> dict[str, tuple[int, int, int]]:
        """What the provider has to have of it: authorisations made, standing ones, charges."""
        if self.aborted and self.moment in {"begin", "before"}:
            return {}
        return {self.saga_id: (1, 1, 1) if self.end == COMMITTED else (1, 0, 0)}


@dataclass(slots=True)
class World:
    """Everything that runs."""

    data: Path
    coordinator: Process
    cards: Process
    payments: Process

    @property
    def provider(self) -> Http:
        """The way to the card provider."""
        return Http(self.cards.address)

    def client(self) -> SagaClient:
        """Starts sagas, and asks about them."""
        return SagaClient(self.coordinator.address)

    async def come_to(self, points: Iterable[Point]) -> None:
        """Wait until each saga is held at its point."""
        for point in points:
            while not point.is_at_the_provider and not (self.data / "held" / point.name).exists():
                await pause()
        await held(self.provider, *(point.name for point in points if point.is_at_the_provider))

    async def payments_again(self) -> None:
        """Start payments once more, with nothing held."""
        self.payments = payments_process(self.data, self.coordinator, self.cards)
        await self.payments.start()

    async def cards_again(self) -> None:
        """Start the provider once more, where it was, with nothing held."""
        port, self.cards = self.cards.port, provider_process(self.data)
        self.cards.port = port
        await self.cards.start()

    async def nothing_is_held(self) -> None:
        """Let the provider go on with what it still holds: requests of a process that is long gone."""
        await self.provider.post("let-go", {}, key="")
        while await held_at(self.provider):
            await pause()

    def books(self) -> dict[str, tuple[object, ...]]:
        """Of each saga: how many authorisations were made, how many stand, and how many charges."""
        asked = (
            "SELECT reference, count(*), sum(state <> 'voided'), (SELECT count(*) FROM charge WHERE "
            "charge.reference = authorization.reference) FROM authorization GROUP BY reference"
        )
        return {str(saga_id): tuple(counts) for saga_id, *counts in card_rows(self.data, asked)}


def payments_process(data: Path, to: Process, cards: Process, *points: Point) -> Process:
    """Payments, which holds these points."""
    options = [option for point in points if not point.is_at_the_provider for option in ("--hold", point.name)]
    arguments = ["--coordinator", to.address, "--cards", cards.address, "--data", str(data), "--port", "{port}"]
    return Process(["tests.participants.held_payments", *arguments, *options], {}, data / "payments.log")


@asynccontextmanager
async def world(data: Path, *points: Point) -> AsyncGenerator[World]:
    """A coordinator, payments and a card provider, the last two with these points held."""
    to = coordinator(data, AMENDS_PARTICIPANT_LEASE_S="6")
    cards = provider_process(data, *(f"{point.name}:hold" for point in points if point.is_at_the_provider))
    await asyncio.gather(to.start(), cards.start())
    here = World(data, to, cards, payments_process(data, to, cards, *points))
    try:
        await here.payments.start()
        yield here
    finally:
        for process in (here.payments, here.cards, to):
            await process.kill()


async def check_ends(client: SagaClient, here: World, points: Iterable[Point]) -> None:
    """Each saga ends by itself and proven, and the provider's books agree with it."""
    for point in points:
        saga = await client.get(point.saga_id)
        while saga.state not in {COMMITTED, COMPENSATED}:
            assert not saga.attention_required, saga
            await pause()
            saga = await client.get(point.saga_id)
        assert (point.saga_id, saga.state, saga.unproven) == (point.saga_id, point.end, False)
    await here.nothing_is_held()
    assert here.books() == {saga_id: counts for point in points for saga_id, counts in point.books.items()}


async def start_all(client: SagaClient, points: Iterable[Point]) -> None:
    """Start the saga of each point."""
    for point in points:
        await client.start(unpaid if point.method == "Void" else paid, WANTED, saga_id=point.saga_id)


async def test_payments_dies_at_every_point(tmp_path: Path) -> None:
    """S2, S4: one authorisation for each saga that committed, taken once; none stands for the compensated ones, also
    where what was begun is undone before anybody knows what became of it, and its request arrives after that.
    """
    points = [Point(method, moment) for method in THINGS for moment in ("begin", "before", "after", "end")]
    points += [Point("Authorize", moment, aborted=True) for moment in ("begin", "before", "after", "end")]
    async with asyncio.timeout(BOUND_S), world(tmp_path, *points) as here, here.client() as client:
        await start_all(client, points)
        await here.come_to(points)
        await here.payments.kill()
        for point in points:
            if point.aborted:
                await client.abort(point.saga_id)
        await here.payments_again()
        await check_ends(client, here, points)


async def test_the_provider_dies_at_every_point(tmp_path: Path) -> None:
    """S2, S4: payments asks again with the same key, and the provider knows what it did before it died."""
    points = [Point(method, moment) for method in THINGS for moment in ("before", "after")]
    async with asyncio.timeout(BOUND_S), world(tmp_path, *points) as here, here.client() as client:
        await start_all(client, points)
        await here.come_to(points)
        await here.cards.kill()
        await here.cards_again()
        await check_ends(client, here, points)
