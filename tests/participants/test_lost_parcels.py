"""A parcel of which nobody hears: the shipping service's barrier says what became of it, and no person is needed.

The steps are the order saga's own, without its payments, and with a budget that is soon spent.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from amends import Committed, Compensated, Saga
from amends.v1 import registry_service_pb2, saga_pb2
from hosting.serving import Place, hosted
from shop.demo.books import query, read_calls
from shop.orders.v1 import orders_pb2
from shop.orders.v1.orders_pb2 import PlaceOrder
from shop.process import SERVICES
from shop.saga import CancelOrder, CreateOrder, Ship
from shop.shipping.v1 import shipping_pb2
from tests.participants.serving import NO_COORDINATOR
from tests.scenarios.inside import inside
from tests.scenarios.journal import Journal
from tests.timelines.network import Fate, between
from tests.timelines.sagas import ATTEMPT, SHORT
from tests.timelines.stage import PARTICIPANT_LEASE_S
from tests.unit.grpc_api.samples import files_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from tests.scenarios.inside import Inside
    from tests.timelines.network import Network

parcel = Saga("parcel", input=PlaceOrder)
create_order = parcel.step("create_order", CreateOrder(sku=parcel.input.sku, quantity=parcel.input.quantity))
create_order.compensated_by(CancelOrder(order_id=create_order.response.order_id))
parcel.pivot(
    "ship",
    Ship(order_id=create_order.response.order_id, country=parcel.input.country),
    timeout=ATTEMPT,
    retry=SHORT,
)

TEAPOT = PlaceOrder(customer_id="ada", sku="teapot", quantity=1, country="Chile")


@dataclass(frozen=True, slots=True)
class Shop:
    """Orders and shipping, with a network before them; their databases are in `data`."""

    coordinator: Inside
    network: Network
    data: Path


@asynccontextmanager
async def shop(data: Path) -> AsyncGenerator[Shop]:
    """A shop that is open until the block ends."""
    place = Place(coordinator=NO_COORDINATOR, port=0, data=data)
    journal = Journal(data / "journal.jsonl")
    async with (
        hosted("orders", SERVICES["orders"], place) as orders,
        orders,
        hosted("shipping", SERVICES["shipping"], place) as shipping,
        shipping,
        between(journal, shipping.address) as network,
        inside(data, participant_lease_s=PARTICIPANT_LEASE_S) as coordinator,
    ):
        for name, described, address in (
            ("orders", orders_pb2.DESCRIPTOR, orders.address),
            ("shipping", shipping_pb2.DESCRIPTOR, network.address),
        ):
            await coordinator.registry.RegisterParticipant(
                registry_service_pb2.RegisterParticipantRequest(
                    name=name,
                    services=[service.full_name for service in described.services_by_name.values()],
                    instance=registry_service_pb2.ParticipantInstance(instance_id="i-1", address=address),
                    descriptors=files_of(described),
                )
            )
        yield Shop(coordinator, network, data)


async def shipped(place: Shop) -> tuple[saga_pb2.Saga, Committed[None] | Compensated]:
    """A saga at its end, which needed nobody."""
    handle = await place.coordinator.client.start(parcel, TEAPOT, saga_id="s")
    end = await handle.wait()
    assert isinstance(end, Committed | Compensated)
    saga = await handle.get()
    lookups = [row.state for row in saga.intents if row.direction == saga_pb2.DIRECTION_LOOKUP]
    assert len(lookups) == 1
    assert not saga.unproven
    assert not saga.dead_letters
    return saga, end


async def test_a_parcel_whose_answer_is_lost_for_good_goes_on_its_way(tmp_path: Path) -> None:
    """S6: every answer to the pivot is lost; its lookup has the answer that was stored with the work: forward."""
    async with shop(tmp_path) as place:
        place.network.does("ship/action", Fate.LOST)
        _, end = await shipped(place)
        assert isinstance(end, Committed)
    assert query(tmp_path / "orders.db", "SELECT state FROM customer_order") == [("placed",)]
    assert query(tmp_path / "shipping.db", "SELECT country FROM shipment") == [("Chile",)]


async def test_a_parcel_that_never_came_is_given_up_and_refused_when_it_comes(tmp_path: Path) -> None:
    """S4, S6, V3: the lookup's NOT_FOUND is sealed, so the point of no return is taken back at once and the order is
    cancelled; what was on its way all the time is refused.
    """
    async with shop(tmp_path) as place:
        place.network.does("ship/action", Fate.LATE)
        saga, end = await shipped(place)
        assert isinstance(end, Compensated)
        assert not saga.point_of_no_return_passed
        assert set(await place.network.deliver("ship/action")) == {grpc.StatusCode.FAILED_PRECONDITION}
    assert query(tmp_path / "orders.db", "SELECT state FROM customer_order") == [("cancelled",)]
    assert query(tmp_path / "shipping.db", "SELECT country FROM shipment") == []
    assert not any(call.effect_made for call in read_calls(tmp_path, "shipping"))
