"""The journal of calls stands around a service, and says what was answered and what was changed: it is evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest

from amends import Rejected
from hosting.serving import Service
from shop.demo.books import query, read_calls
from shop.orders.service import Orders
from shop.orders.tables import TABLES
from shop.orders.v1.orders_pb2 import CancelOrderRequest, CreateOrderRequest, CreateOrderResponse
from shop.orders.v1.orders_pb2_grpc import OrdersServiceStub
from tests.participants.serving import as_step, serving

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

WANTED = CreateOrderRequest(customer_id="ada", sku="kettle", quantity=1)


class Undecided(Orders):
    """Writes an order down, and refuses it then."""

    async def CreateOrder(
        self,
        request: CreateOrderRequest,
        context: grpc.aio.ServicerContext[CreateOrderRequest, Awaitable[CreateOrderResponse]],
    ) -> CreateOrderResponse:
        await super().CreateOrder(request, context)
        raise Rejected("on second thoughts", reason="NO")


async def test_what_was_rolled_back_is_no_effect(tmp_path: Path) -> None:
    """S4: the mark is part of the work's transaction; and a refusal is written down before anybody hears of it."""
    undecided = Service(TABLES, lambda database: Undecided(database.sessions))
    async with serving("orders", tmp_path, service=undecided) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await OrdersServiceStub(channel).CreateOrder(WANTED, metadata=as_step("create_order"))
        (call,) = read_calls(tmp_path, "orders")
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert (call.outcome, call.effect_made, call.end_time is None) == ("FAILED_PRECONDITION", False, False)
    assert query(tmp_path / "orders.db", "SELECT 1 FROM customer_order") == []


async def test_a_statement_that_touches_nothing_is_no_effect(tmp_path: Path) -> None:
    """S4: cancelling an order for the second time, under another key, changes nothing."""
    async with serving("orders", tmp_path) as channel:
        orders = OrdersServiceStub(channel)
        made = await orders.CreateOrder(WANTED, metadata=as_step("create_order"))
        for saga_id in ("saga-2", "saga-3"):
            cancel = as_step("create_order", saga_id=saga_id, direction="compensation", target="other")
            await orders.CancelOrder(CancelOrderRequest(order_id=made.order_id), metadata=cancel)
    assert [call.effect_made for call in read_calls(tmp_path, "orders")] == [True, True, False]


async def test_calls_of_no_saga_are_not_in_it(tmp_path: Path) -> None:
    """S1: it has calls of steps; whoever calls a barred method without one is told that it works for steps only."""
    async with serving("orders", tmp_path) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await OrdersServiceStub(channel).CreateOrder(WANTED)
    assert refused.value.code() is grpc.StatusCode.UNKNOWN
    assert read_calls(tmp_path, "orders") == ()
