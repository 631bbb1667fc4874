"""The shop's services over real gRPC: once per key, honest refusals, compensations that may come for nothing."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest

from hosting.holds import ReplyHold
from shop.demo.books import ServiceCall, query, read_calls
from shop.inventory.v1.inventory_pb2 import ReleaseRequest, ReserveRequest
from shop.inventory.v1.inventory_pb2_grpc import InventoryServiceStub
from shop.notifications.v1.notifications_pb2 import SendRequest
from shop.notifications.v1.notifications_pb2_grpc import NotificationsServiceStub
from shop.orders.v1.orders_pb2 import CancelOrderRequest, CreateOrderRequest
from shop.orders.v1.orders_pb2_grpc import OrdersServiceStub
from shop.shipping.v1.shipping_pb2 import FindShipmentRequest, ShipRequest
from shop.shipping.v1.shipping_pb2_grpc import ShippingServiceStub
from tests.participants.serving import as_step, serving
from tests.waiting import eventually

CALL_TIMEOUT_S = 20.0
RESERVE = ReserveRequest(sku="kettle", quantity=2)
MADE = "SELECT reservation_id FROM reservation"


def rows(data: Path, name: str, sql: str) -> list[tuple[object, ...]]:
    """The rows of a query on one service's database."""
    return [tuple(row) for row in query(data / f"{name}.db", sql)]


def course(calls: tuple[ServiceCall, ...]) -> list[tuple[str, str | None, bool]]:
    """Method, outcome and effect of each call, in the order in which they came."""
    return [(call.method, call.outcome, call.effect_made) for call in calls]


async def test_the_same_key_is_answered_from_memory(tmp_path: Path) -> None:
    """S2: whoever repeats a call with its key gets the first answer, and the work is done once."""
    async with serving("inventory", tmp_path) as channel:
        inventory = InventoryServiceStub(channel)
        first = await inventory.Reserve(RESERVE, metadata=as_step("reserve"), timeout=CALL_TIMEOUT_S)
        again = await inventory.Reserve(RESERVE, metadata=as_step("reserve", attempt=2), timeout=CALL_TIMEOUT_S)
    assert first == again
    assert rows(tmp_path, "inventory", MADE) == [(first.reservation_id,)]
    assert course(read_calls(tmp_path, "inventory")) == [("Reserve", "OK", True), ("Reserve", "OK", False)]


async def test_twenty_calls_with_one_key_at_once_do_the_work_once(tmp_path: Path) -> None:
    """S2: also when they overlap in several processes: each gets the answer of the one that did it."""
    async with AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(serving("inventory", tmp_path)) for _ in range(4)]
        calls = (
            InventoryServiceStub(channels[number % 4]).Reserve(
                RESERVE, metadata=as_step("reserve", attempt=number), timeout=CALL_TIMEOUT_S
            )
            for number in range(1, 21)
        )
        answers = await asyncio.gather(*calls)
    assert len({answer.reservation_id for answer in answers}) == 1
    assert rows(tmp_path, "inventory", "SELECT count(*) FROM reservation") == [(1,)]
    assert sum(call.effect_made for call in read_calls(tmp_path, "inventory")) == 1


async def test_the_same_key_with_another_request_is_refused_as_unknown(tmp_path: Path) -> None:
    """S2: `ABORTED` proves nothing, so a coordinator can't read it as "this did not happen". After a restart the
    database alone remembers.
    """
    async with serving("inventory", tmp_path) as channel:
        await InventoryServiceStub(channel).Reserve(RESERVE, metadata=as_step("reserve"), timeout=CALL_TIMEOUT_S)
    other = ReserveRequest(sku="kettle", quantity=3)
    async with serving("inventory", tmp_path) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await InventoryServiceStub(channel).Reserve(other, metadata=as_step("reserve"), timeout=CALL_TIMEOUT_S)
    assert refused.value.code() is grpc.StatusCode.ABORTED
    assert rows(tmp_path, "inventory", "SELECT quantity FROM reservation") == [(2,)]
    assert course(read_calls(tmp_path, "inventory"))[-1] == ("Reserve", "ABORTED", False)


async def test_keys_of_two_ledgers_are_two_keys(tmp_path: Path) -> None:
    """S2: staging and production may share a service."""
    async with serving("inventory", tmp_path) as channel:
        inventory = InventoryServiceStub(channel)
        staging = tuple((name, "staging" if name == "amends-ledger" else value) for name, value in as_step("reserve"))
        await inventory.Reserve(RESERVE, metadata=as_step("reserve"), timeout=CALL_TIMEOUT_S)
        await inventory.Reserve(RESERVE, metadata=staging, timeout=CALL_TIMEOUT_S)
    assert rows(tmp_path, "inventory", "SELECT count(*) FROM reservation") == [(2,)]


async def test_a_held_reply_comes_too_late_and_the_next_attempt_is_answered_at_once(tmp_path: Path) -> None:
    """S2: the effect of an attempt whose answer was lost is not made again."""
    hold = ReplyHold.parse("Reserve:sku=kettle:60")
    async with serving("inventory", tmp_path, holds=[hold]) as channel:
        inventory = InventoryServiceStub(channel)
        late = inventory.Reserve(RESERVE, metadata=as_step("reserve"), timeout=CALL_TIMEOUT_S)
        await eventually(lambda: bool(rows(tmp_path, "inventory", MADE)), what="it is reserved")
        late.cancel()
        await eventually(
            lambda: read_calls(tmp_path, "inventory")[0].outcome is not None, what="the first call is seen to end"
        )
        again = await inventory.Reserve(RESERVE, metadata=as_step("reserve", attempt=2), timeout=CALL_TIMEOUT_S)
    assert rows(tmp_path, "inventory", MADE) == [(again.reservation_id,)]
    assert course(read_calls(tmp_path, "inventory")) == [("Reserve", "CANCELLED", True), ("Reserve", "OK", False)]


async def test_a_refusal_leaves_nothing_and_stays(tmp_path: Path) -> None:
    """S4: a clear refusal is proof that nothing was done; it is repeated under its key, whatever came since."""
    too_many, again = ReserveRequest(sku="kettle", quantity=11), as_step("reserve", attempt=2)
    async with serving("inventory", tmp_path) as channel:
        for metadata in (as_step("reserve"), again):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await InventoryServiceStub(channel).Reserve(too_many, metadata=metadata, timeout=CALL_TIMEOUT_S)
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert ("amends-sealed", "1") in tuple(refused.value.trailing_metadata() or ())
    assert rows(tmp_path, "inventory", MADE) == []
    assert course(read_calls(tmp_path, "inventory")) == [("Reserve", "FAILED_PRECONDITION", False)] * 2


async def test_a_release_finds_its_work_by_the_actions_key_and_undoes_it_once(tmp_path: Path) -> None:
    """S4: a reservation whose id never reached anybody can still be undone, however often that is asked for."""
    async with serving("inventory", tmp_path) as channel:
        inventory = InventoryServiceStub(channel)
        await inventory.Reserve(RESERVE, metadata=as_step("reserve"), timeout=CALL_TIMEOUT_S)
        for attempt in (1, 2):
            release = as_step("reserve", direction="compensation", attempt=attempt)
            await inventory.Release(ReleaseRequest(), metadata=release, timeout=CALL_TIMEOUT_S)
    assert rows(tmp_path, "inventory", "SELECT state FROM reservation") == [("released",)]
    assert course(read_calls(tmp_path, "inventory"))[1:] == [("Release", "OK", True), ("Release", "OK", False)]


async def test_a_release_of_nothing_succeeds_and_shuts_the_door(tmp_path: Path) -> None:
    """S4, F04: whether there was anything to undo is not the coordinator's to know; what comes too late is refused."""
    async with serving("inventory", tmp_path) as channel:
        inventory = InventoryServiceStub(channel)
        release = as_step("reserve", direction="compensation")
        await inventory.Release(ReleaseRequest(), metadata=release, timeout=CALL_TIMEOUT_S)
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await inventory.Reserve(RESERVE, metadata=as_step("reserve"), timeout=CALL_TIMEOUT_S)
    assert late.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert [call.effect_made for call in read_calls(tmp_path, "inventory")] == [False, False]
    assert rows(tmp_path, "inventory", MADE) == []


async def test_undone_for_another_participant_it_goes_by_the_request(tmp_path: Path) -> None:
    """F04: who was not called with the action has no answer of it: what is to be undone stands in the request."""
    async with serving("inventory", tmp_path) as channel:
        inventory = InventoryServiceStub(channel)
        made = await inventory.Reserve(RESERVE, metadata=as_step("reserve"), timeout=CALL_TIMEOUT_S)
        release = as_step("book", direction="compensation", target="other")
        request = ReleaseRequest(reservation_id=made.reservation_id)
        await inventory.Release(request, metadata=release, timeout=CALL_TIMEOUT_S)
    assert rows(tmp_path, "inventory", "SELECT state FROM reservation") == [("released",)]


async def test_stock_is_reserved_refused_and_released(tmp_path: Path) -> None:
    """S4: the shelf adds up after a reservation, a refusal and a release that comes twice."""
    free = "SELECT free_count FROM stock WHERE sku = 'kettle'"
    async with serving("inventory", tmp_path) as channel:
        inventory = InventoryServiceStub(channel)
        seven, release = ReserveRequest(sku="kettle", quantity=7), as_step("reserve", direction="compensation")
        await inventory.Reserve(seven, metadata=as_step("reserve"), timeout=CALL_TIMEOUT_S)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await inventory.Reserve(seven, metadata=as_step("reserve", saga_id="saga-2"), timeout=CALL_TIMEOUT_S)
        assert rows(tmp_path, "inventory", free) == [(3,)]
        for _ in range(2):
            await inventory.Release(ReleaseRequest(), metadata=release, timeout=CALL_TIMEOUT_S)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert rows(tmp_path, "inventory", free) == [(10,)]


async def test_an_order_is_written_down_and_cancelled(tmp_path: Path) -> None:
    """S4: the order stays in the books as cancelled."""
    async with serving("orders", tmp_path) as channel:
        orders = OrdersServiceStub(channel)
        wanted = CreateOrderRequest(customer_id="ada", sku="kettle", quantity=1)
        made = await orders.CreateOrder(wanted, metadata=as_step("create_order"), timeout=CALL_TIMEOUT_S)
        cancel = as_step("create_order", direction="compensation")
        await orders.CancelOrder(CancelOrderRequest(order_id=made.order_id), metadata=cancel, timeout=CALL_TIMEOUT_S)
    assert rows(tmp_path, "orders", "SELECT order_id, state FROM customer_order") == [(made.order_id, "cancelled")]


async def test_the_carrier_refuses_a_country(tmp_path: Path) -> None:
    """S4: a refused parcel is not on its way."""
    async with serving("shipping", tmp_path) as channel:
        shipping = ShippingServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await shipping.Ship(ShipRequest(country="Atlantis"), metadata=as_step("ship"), timeout=CALL_TIMEOUT_S)
        elsewhere = as_step("ship", saga_id="saga-2")
        await shipping.Ship(ShipRequest(country="Chile"), metadata=elsewhere, timeout=CALL_TIMEOUT_S)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert rows(tmp_path, "shipping", "SELECT country FROM shipment") == [("Chile",)]


async def test_the_lookup_tells_what_became_of_a_parcel(tmp_path: Path) -> None:
    """S6: the action's own answer, or a promise that it will never be handed over."""
    found = as_step("ship", direction="lookup", kind="pivot")
    async with serving("shipping", tmp_path) as channel:
        shipping = ShippingServiceStub(channel)
        made = await shipping.Ship(ShipRequest(country="Chile"), metadata=as_step("ship", kind="pivot"))
        assert await shipping.FindShipment(FindShipmentRequest(), metadata=found) == made
        never = as_step("ship", saga_id="saga-2", direction="lookup", kind="pivot")
        with pytest.raises(grpc.aio.AioRpcError) as missing:
            await shipping.FindShipment(FindShipmentRequest(), metadata=never)
    assert missing.value.code() is grpc.StatusCode.NOT_FOUND
    assert ("amends-sealed", "1") in tuple(missing.value.trailing_metadata() or ())
    assert [call.outcome for call in read_calls(tmp_path, "shipping")] == ["OK", "OK", "NOT_FOUND"]


async def test_a_letter_is_sent_once(tmp_path: Path) -> None:
    """S2: a repeated call sends no second letter, also after the service was started again."""
    letter = SendRequest(email="ada@example.com", template="shipped", order_id="order-1")
    answers: list[str] = []
    for attempt in (1, 2):
        async with serving("notifications", tmp_path) as channel:
            notifications, metadata = NotificationsServiceStub(channel), as_step("notify", attempt=attempt)
            sent = await notifications.Send(letter, metadata=metadata, timeout=CALL_TIMEOUT_S)
            answers.append(sent.message_id)
    assert rows(tmp_path, "notifications", "SELECT message_id FROM message") == [(answers[0],)]
    assert answers[0] == answers[1]
