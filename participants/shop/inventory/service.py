"""The inventory service: reserves stock and releases it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import insert, select, update

from amends import Rejected, current_step
from keyed.calls import Answer, KeyedCalls
from keyed.database import new_id
from shop.inventory.tables import HELD, RELEASED, reservation, stock
from shop.inventory.v1.inventory_pb2 import ReleaseRequest, ReleaseResponse, ReserveRequest, ReserveResponse
from shop.inventory.v1.inventory_pb2_grpc import InventoryServiceServicer

if TYPE_CHECKING:
    from collections.abc import Awaitable

    import grpc
    from sqlalchemy import Connection


class Inventory(InventoryServiceServicer):
    """Answers the calls of `shop.inventory.v1.InventoryService`."""

    def __init__(self, calls: KeyedCalls) -> None:
        self._calls = calls

    async def Reserve(
        self,
        request: ReserveRequest,
        context: grpc.aio.ServicerContext[ReserveRequest, Awaitable[ReserveResponse]],
    ) -> ReserveResponse:
        return await self._calls.once(request, _reserve, ReserveResponse, context)

    async def Release(
        self,
        request: ReleaseRequest,
        context: grpc.aio.ServicerContext[ReleaseRequest, Awaitable[ReleaseResponse]],
    ) -> ReleaseResponse:
        return await self._calls.once(request, _release, ReleaseResponse, context)


def _reserve(connection: Connection, request: ReserveRequest) -> Answer[ReserveResponse]:
    if request.quantity < 1:
        raise Rejected(f"{request.quantity} pieces can't be reserved: ask for at least one", reason="EMPTY_ORDER")
    taken = connection.execute(
        update(stock)
        .where(stock.c.sku == request.sku, stock.c.free_count >= request.quantity)
        .values(free_count=stock.c.free_count - request.quantity)
    )
    if taken.rowcount == 0:
        raise Rejected(f"fewer than {request.quantity} of {request.sku!r} are in stock", reason="OUT_OF_STOCK")
    reservation_id, step = new_id("res"), current_step()
    connection.execute(
        insert(reservation).values(
            reservation_id=reservation_id,
            sku=request.sku,
            quantity=request.quantity,
            state=HELD,
            saga_id=step.saga_id,
            action_key=step.key,
        )
    )
    return Answer(ReserveResponse(reservation_id=reservation_id))


def _release(connection: Connection, request: ReleaseRequest) -> Answer[ReleaseResponse]:
    held = reservation.c
    by_id = held.reservation_id == request.reservation_id
    which = by_id if request.reservation_id else held.action_key == current_step().action_key
    row = connection.execute(
        select(held.reservation_id, held.sku, held.quantity).where(which, held.state == HELD)
    ).one_or_none()
    if row is None:
        return Answer(ReleaseResponse(), effect_made=False)
    connection.execute(update(reservation).where(held.reservation_id == row.reservation_id).values(state=RELEASED))
    connection.execute(update(stock).where(stock.c.sku == row.sku).values(free_count=stock.c.free_count + row.quantity))
    return Answer(ReleaseResponse())
