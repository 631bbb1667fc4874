"""The orders service: writes orders down and cancels them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import insert, update

from amends import Rejected, current_step
from keyed.calls import Answer, KeyedCalls
from keyed.database import new_id
from shop.orders.tables import CANCELLED, PLACED, customer_order
from shop.orders.v1.orders_pb2 import (
    CancelOrderRequest,
    CancelOrderResponse,
    CreateOrderRequest,
    CreateOrderResponse,
)
from shop.orders.v1.orders_pb2_grpc import OrdersServiceServicer

if TYPE_CHECKING:
    from collections.abc import Awaitable

    import grpc
    from sqlalchemy import Connection


class Orders(OrdersServiceServicer):
    """Answers the calls of `shop.orders.v1.OrdersService`."""

    def __init__(self, calls: KeyedCalls) -> None:
        self._calls = calls

    async def CreateOrder(
        self,
        request: CreateOrderRequest,
        context: grpc.aio.ServicerContext[CreateOrderRequest, Awaitable[CreateOrderResponse]],
    ) -> CreateOrderResponse:
        return await self._calls.once(request, _create, CreateOrderResponse, context)

    async def CancelOrder(
        self,
        request: CancelOrderRequest,
        context: grpc.aio.ServicerContext[CancelOrderRequest, Awaitable[CancelOrderResponse]],
    ) -> CancelOrderResponse:
        return await self._calls.once(request, _cancel, CancelOrderResponse, context)


def _create(connection: Connection, request: CreateOrderRequest) -> Answer[CreateOrderResponse]:
    if request.quantity < 1:
        raise Rejected(f"an order of {request.quantity} pieces is none: order at least one", reason="EMPTY_ORDER")
    order_id, step = new_id("order"), current_step()
    connection.execute(
        insert(customer_order).values(
            order_id=order_id,
            customer_id=request.customer_id,
            sku=request.sku,
            quantity=request.quantity,
            total_minor_units=request.total.minor_units,
            currency_code=request.total.currency_code,
            state=PLACED,
            saga_id=step.saga_id,
            action_key=step.key,
        )
    )
    return Answer(CreateOrderResponse(order_id=order_id))


def _cancel(connection: Connection, request: CancelOrderRequest) -> Answer[CancelOrderResponse]:
    order = customer_order.c
    which = order.order_id == request.order_id if request.order_id else order.action_key == current_step().action_key
    cancelled = connection.execute(update(customer_order).where(which, order.state == PLACED).values(state=CANCELLED))
    return Answer(CancelOrderResponse(), effect_made=cancelled.rowcount > 0)
