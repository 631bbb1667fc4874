"""The inventory service: reserves stock and releases it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import insert, select, update

from amends import Rejected, barrier, current_step
from hosting.database import new_id
from shop.inventory.tables import HELD, RELEASED, reservation, stock
from shop.inventory.v1.inventory_pb2 import ReleaseRequest, ReleaseResponse, ReserveRequest, ReserveResponse
from shop.inventory.v1.inventory_pb2_grpc import InventoryServiceServicer

if TYPE_CHECKING:
    from collections.abc import Awaitable

    import grpc
    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker


class Inventory(InventoryServiceServicer):
    """Answers the calls of `shop.inventory.v1.InventoryService`."""

    def __init__(self, sessions: async_sessionmaker[AsyncSession]) -> None:
        self._sessions = sessions

    async def Reserve(
        self,
        request: ReserveRequest,
        context: grpc.aio.ServicerContext[ReserveRequest, Awaitable[ReserveResponse]],
    ) -> ReserveResponse:
        async with barrier.transaction(self._sessions) as session:
            if request.quantity < 1:
                raise Rejected(f"{request.quantity} can't be reserved: ask for at least one", reason="EMPTY_ORDER")
            on_shelf = stock.c.sku == request.sku
            shelf = (await session.execute(select(stock).where(on_shelf).with_for_update())).one_or_none()
            if shelf is None or shelf.free_count < request.quantity:
                raise Rejected(f"fewer than {request.quantity} of {request.sku!r} are in stock", reason="OUT_OF_STOCK")
            await session.execute(update(stock).where(on_shelf).values(free_count=shelf.free_count - request.quantity))
            reservation_id = new_id("res")
            await session.execute(
                insert(reservation).values(
                    reservation_id=reservation_id,
                    sku=request.sku,
                    quantity=request.quantity,
                    state=HELD,
                    saga_id=current_step().saga_id,
                )
            )
            return ReserveResponse(reservation_id=reservation_id)

    async def Release(
        self,
        request: ReleaseRequest,
        context: grpc.aio.ServicerContext[ReleaseRequest, Awaitable[ReleaseResponse]],
    ) -> ReleaseResponse:
        async with barrier.transaction(self._sessions) as session:
            # The barrier knows what the action answered, even where that answer reached nobody.
            made = current_step().action_response
            reservation_id = made.reservation_id if isinstance(made, ReserveResponse) else request.reservation_id
            held = reservation.c.reservation_id == reservation_id, reservation.c.state == HELD
            found = (await session.execute(select(reservation).where(*held).with_for_update())).one_or_none()
            if found is not None:
                await session.execute(update(reservation).where(*held).values(state=RELEASED))
                await session.execute(
                    update(stock).where(stock.c.sku == found.sku).values(free_count=stock.c.free_count + found.quantity)
                )
            return ReleaseResponse()
