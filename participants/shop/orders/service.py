"""The orders service: writes orders down and cancels them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import insert, update

from amends import Rejected, barrier, current_step
from hosting.database import new_id
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
    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker


class Orders(OrdersServiceServicer):
    """Answers the calls of `shop.orders.v1.OrdersService`."""

    def __init__(self, sessions: async_sessionmaker[AsyncSession]) -> None:
        self._sessions = sessions

    async def CreateOrder(
        self,
        request: CreateOrderRequest,
        context: grpc.aio.ServicerContext[CreateOrderRequest, Awaitable[CreateOrderResponse]],
    ) -> CreateOrderResponse:
        async with barrier.transaction(self._sessions) as session:
            if request.quantity < 1:
                raise Rejected(f"an order of {request.quantity} is none: order at least one", reason="EMPTY_ORDER")
            order_id = new_id("order")
            await session.execute(
                insert(customer_order).values(
                    order_id=order_id,
                    customer_id=request.customer_id,
                    sku=request.sku,
                    quantity=request.quantity,
                    total_minor_units=request.total.minor_units,
                    currency_code=request.total.currency_code,
                    state=PLACED,
                    saga_id=current_step().saga_id,
                )
            )
            return CreateOrderResponse(order_id=order_id)

    async def CancelOrder(
        self,
        request: CancelOrderRequest,
        context: grpc.aio.ServicerContext[CancelOrderRequest, Awaitable[CancelOrderResponse]],
    ) -> CancelOrderResponse:
        async with barrier.transaction(self._sessions) as session:
            # The barrier knows what the action answered, even where that answer reached nobody.
            made = current_step().action_response
            order_id = made.order_id if isinstance(made, CreateOrderResponse) else request.order_id
            order = customer_order.c
            await session.execute(
                update(customer_order).where(order.order_id == order_id, order.state == PLACED).values(state=CANCELLED)
            )
            return CancelOrderResponse()
