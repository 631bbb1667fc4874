"""The shop's services over real gRPC: once per key, honest refusals, compensations that may come for nothing."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest

from keyed.holds import ReplyHold
from shop.demo.books import ServiceCall, query, read_calls
from shop.inventory.v1.inventory_pb2 import ReleaseRequest, ReserveRequest
from shop.inventory.v1.inventory_pb2_grpc import InventoryServiceStub
from shop.money.v1.money_pb2 import Money
from shop.notifications.v1.notifications_pb2 import SendRequest
from shop.notifications.v1.notifications_pb2_grpc import NotificationsServiceStub
from shop.orders.v1.orders_pb2 import CancelOrderRequest, CreateOrderRequest
from shop.orders.v1.orders_pb2_grpc import OrdersServiceStub
from shop.payments.v1.payments_pb2 import (
    AuthorizeRequest,
    AuthorizeResponse,
    CaptureRequest,
    FindAuthorizationRequest,
    VoidRequest,
)
from shop.payments.v1.payments_pb2_grpc import PaymentsServiceStub
from shop.shipping.v1.shipping_pb2 import ShipRequest
from shop.shipping.v1.shipping_pb2_grpc import ShippingServiceStub
from tests.participants.serving import as_step, serving
from tests.waiting import eventually

CALL_TIMEOUT_S = 20.0
AUTHORIZE = AuthorizeRequest(customer_id="ada", amount=Money(currency_code="EUR", minor_units=4_200))


def rows(data: Path, name: str, sql: str) -> list[tuple[object, ...]]:
    """The rows of a query on one service's database."""
    return [tuple(row) for row in query(data / f"{name}.db", sql)]


def course(calls: tuple[ServiceCall, ...]) -> list[tuple[str, str | None, bool]]:
    """Method, outcome and effect of each call, in the order in which they came."""
    return [(call.method, call.outcome, call.effect_made) for call in calls]


async def test_the_same_key_is_answered_from_memory(tmp_path: Path) -> None:
    """S2: whoever repeats a call with its key gets the first answer, and the work is done once."""
    async with serving("payments", tmp_path) as channel:
        payments = PaymentsServiceStub(channel)
        first = await payments.Authorize(AUTHORIZE, metadata=as_step("authorize"), timeout=CALL_TIMEOUT_S)
        again = await payments.Authorize(AUTHORIZE, metadata=as_step("authorize", attempt=2), timeout=CALL_TIMEOUT_S)
    assert first == again
    assert rows(tmp_path, "payments", "SELECT authorization_id FROM authorization") == [(first.authorization_id,)]
    assert course(read_calls(tmp_path, "payments")) == [("Authorize", "done", True), ("Authorize", "replayed", False)]


async def test_twenty_calls_with_one_key_at_once_do_the_work_once(tmp_path: Path) -> None:
    """S2: also when they overlap in several processes, because the key is looked for under the write lock."""
    async with AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(serving("payments", tmp_path)) for _ in range(4)]
        calls = (
            PaymentsServiceStub(channels[number % 4]).Authorize(
                AUTHORIZE, metadata=as_step("authorize", attempt=number), timeout=CALL_TIMEOUT_S
            )
            for number in range(1, 21)
        )
        answers = await asyncio.gather(*calls, return_exceptions=True)
    done = [answer for answer in answers if isinstance(answer, AuthorizeResponse)]
    refused = {answer.code() for answer in answers if isinstance(answer, grpc.aio.AioRpcError)}
    assert refused <= {grpc.StatusCode.ABORTED}, "within one process a copy of a running call is told so"
    assert len(done) >= 4
    assert len({answer.authorization_id for answer in done}) == 1
    assert rows(tmp_path, "payments", "SELECT count(*) FROM authorization") == [(1,)]
    assert sum(call.effect_made for call in read_calls(tmp_path, "payments")) == 1


async def test_the_same_key_with_another_request_is_refused_as_unknown(tmp_path: Path) -> None:
    """S2: `ABORTED` proves nothing, so a coordinator can't read it as "this did not happen". After a restart the
    database alone remembers.
    """
    async with serving("payments", tmp_path) as channel:
        payments = PaymentsServiceStub(channel)
        await payments.Authorize(AUTHORIZE, metadata=as_step("authorize"), timeout=CALL_TIMEOUT_S)
    other = AuthorizeRequest(customer_id="ada", amount=Money(currency_code="EUR", minor_units=9_900))
    async with serving("payments", tmp_path) as channel:
        payments = PaymentsServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await payments.Authorize(other, metadata=as_step("authorize"), timeout=CALL_TIMEOUT_S)
    assert refused.value.code() is grpc.StatusCode.ABORTED
    assert rows(tmp_path, "payments", "SELECT minor_units FROM authorization") == [(4_200,)]
    assert course(read_calls(tmp_path, "payments"))[-1] == ("Authorize", "key_reused", False)


async def test_keys_of_two_ledgers_are_two_keys(tmp_path: Path) -> None:
    """S2: staging and production may share a service."""
    async with serving("payments", tmp_path) as channel:
        payments = PaymentsServiceStub(channel)
        staging = tuple((name, "staging" if name == "amends-ledger" else value) for name, value in as_step("authorize"))
        await payments.Authorize(AUTHORIZE, metadata=as_step("authorize"), timeout=CALL_TIMEOUT_S)
        await payments.Authorize(AUTHORIZE, metadata=staging, timeout=CALL_TIMEOUT_S)
    assert rows(tmp_path, "payments", "SELECT count(*) FROM authorization") == [(2,)]


async def test_a_held_reply_comes_too_late_and_the_next_attempt_is_answered_at_once(tmp_path: Path) -> None:
    """S2: the effect of an attempt whose answer was lost is not made again."""
    hold = ReplyHold.parse("Authorize:customer_id=ada:60")
    async with serving("payments", tmp_path, holds=[hold]) as channel:
        payments = PaymentsServiceStub(channel)
        late = payments.Authorize(AUTHORIZE, metadata=as_step("authorize"), timeout=CALL_TIMEOUT_S)
        await eventually(
            lambda: bool(rows(tmp_path, "payments", "SELECT 1 FROM authorization")), what="the authorisation is made"
        )
        late.cancel()
        await eventually(
            lambda: read_calls(tmp_path, "payments")[0].outcome is not None, what="the first call is seen to end"
        )
        again = await payments.Authorize(AUTHORIZE, metadata=as_step("authorize", attempt=2), timeout=CALL_TIMEOUT_S)
    assert rows(tmp_path, "payments", "SELECT authorization_id FROM authorization") == [(again.authorization_id,)]
    assert course(read_calls(tmp_path, "payments")) == [
        ("Authorize", "cancelled", True),
        ("Authorize", "replayed", False),
    ]


async def test_a_declined_card_leaves_nothing(tmp_path: Path) -> None:
    """S4: a clear refusal is proof that nothing was done, and is not remembered under the key."""
    too_much = AuthorizeRequest(customer_id="ada", amount=Money(currency_code="EUR", minor_units=100_001))
    async with serving("payments", tmp_path) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await PaymentsServiceStub(channel).Authorize(
                too_much, metadata=as_step("authorize"), timeout=CALL_TIMEOUT_S
            )
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert rows(tmp_path, "payments", "SELECT 1 FROM authorization UNION ALL SELECT 1 FROM answered_call") == []
    assert course(read_calls(tmp_path, "payments")) == [("Authorize", "refused", False)]


async def test_compensations_of_nothing_succeed_and_change_nothing(tmp_path: Path) -> None:
    """S4: whether there was anything to undo is not the coordinator's to know."""
    async with serving("payments", tmp_path) as channel:
        unknown, nameless = VoidRequest(authorization_id="auth-of-nobody"), VoidRequest()
        payments = PaymentsServiceStub(channel)
        for saga_id, request in (("saga-1", unknown), ("saga-2", nameless)):
            metadata = as_step("authorize", saga_id=saga_id, direction="compensation")
            await payments.Void(request, metadata=metadata, timeout=CALL_TIMEOUT_S)
    assert course(read_calls(tmp_path, "payments")) == [("Void", "done", False)] * 2


async def test_void_finds_its_work_by_the_actions_key(tmp_path: Path) -> None:
    """S4: an authorisation whose id never reached anybody can still be undone."""
    async with serving("payments", tmp_path) as channel:
        payments = PaymentsServiceStub(channel)
        await payments.Authorize(AUTHORIZE, metadata=as_step("authorize"), timeout=CALL_TIMEOUT_S)
        void = as_step("authorize", direction="compensation")
        await payments.Void(VoidRequest(), metadata=void, timeout=CALL_TIMEOUT_S)
    assert rows(tmp_path, "payments", "SELECT state FROM authorization") == [("voided",)]


async def test_the_lookup_tells_what_became_of_the_action(tmp_path: Path) -> None:
    """S4: NOT_FOUND before, the action's own response afterwards."""
    lookup = as_step("authorize", direction="lookup")
    async with serving("payments", tmp_path) as channel:
        payments = PaymentsServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as missing:
            await payments.FindAuthorization(FindAuthorizationRequest(), metadata=lookup, timeout=CALL_TIMEOUT_S)
        made = await payments.Authorize(AUTHORIZE, metadata=as_step("authorize"), timeout=CALL_TIMEOUT_S)
        found = await payments.FindAuthorization(FindAuthorizationRequest(), metadata=lookup, timeout=CALL_TIMEOUT_S)
    assert missing.value.code() is grpc.StatusCode.NOT_FOUND
    assert found == made
    assert [call.outcome for call in read_calls(tmp_path, "payments")] == ["not_found", "done", "done"]


async def test_capture_takes_what_stands_and_nothing_else(tmp_path: Path) -> None:
    """S6: money that was taken is not given back by a void, and nothing is taken twice under a new key."""
    async with serving("payments", tmp_path) as channel:
        payments = PaymentsServiceStub(channel)
        made = await payments.Authorize(AUTHORIZE, metadata=as_step("authorize"), timeout=CALL_TIMEOUT_S)
        capture, void = CaptureRequest(authorization_id=made.authorization_id), VoidRequest()
        await payments.Capture(capture, metadata=as_step("capture"), timeout=CALL_TIMEOUT_S)
        with pytest.raises(grpc.aio.AioRpcError) as again:
            await payments.Capture(capture, metadata=as_step("capture_again"), timeout=CALL_TIMEOUT_S)
        with pytest.raises(grpc.aio.AioRpcError) as too_late:
            await payments.Void(void, metadata=as_step("authorize", direction="compensation"), timeout=CALL_TIMEOUT_S)
    assert {again.value.code(), too_late.value.code()} == {grpc.StatusCode.FAILED_PRECONDITION}
    assert rows(tmp_path, "payments", "SELECT state, count(*) FROM authorization JOIN charge") == [("captured", 1)]


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
