"""The shipping service: hands parcels to a carrier that doesn't deliver everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import insert

from amends import Rejected, barrier, current_step
from hosting.database import new_id
from shop.shipping.tables import shipment
from shop.shipping.v1.shipping_pb2 import FindShipmentRequest, ShipRequest, ShipResponse
from shop.shipping.v1.shipping_pb2_grpc import ShippingServiceServicer

if TYPE_CHECKING:
    from collections.abc import Awaitable

    import grpc
    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

UNREACHABLE_COUNTRIES = frozenset({"Atlantis"})


class Shipping(ShippingServiceServicer):
    """Answers the calls of `shop.shipping.v1.ShippingService`."""

    def __init__(self, sessions: async_sessionmaker[AsyncSession]) -> None:
        self._sessions = sessions

    async def Ship(
        self,
        request: ShipRequest,
        context: grpc.aio.ServicerContext[ShipRequest, Awaitable[ShipResponse]],
    ) -> ShipResponse:
        async with barrier.transaction(self._sessions) as session:
            if request.country in UNREACHABLE_COUNTRIES:
                raise Rejected(f"the carrier does not deliver to {request.country}", reason="COUNTRY_NOT_SERVED")
            shipment_id = new_id("parcel")
            await session.execute(
                insert(shipment).values(
                    shipment_id=shipment_id,
                    order_id=request.order_id,
                    reservation_id=request.reservation_id,
                    country=request.country,
                    saga_id=current_step().saga_id,
                )
            )
            return ShipResponse(shipment_id=shipment_id)

    async def FindShipment(
        self,
        request: FindShipmentRequest,
        context: grpc.aio.ServicerContext[FindShipmentRequest, Awaitable[ShipResponse]],
    ) -> ShipResponse:
        return await barrier.lookup(self._sessions, ShipResponse)
