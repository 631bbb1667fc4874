"""The shipping service: hands parcels to a carrier that doesn't deliver everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import insert

from amends import Rejected, current_step
from keyed.calls import Answer, KeyedCalls
from keyed.database import new_id
from shop.shipping.tables import shipment
from shop.shipping.v1.shipping_pb2 import ShipRequest, ShipResponse
from shop.shipping.v1.shipping_pb2_grpc import ShippingServiceServicer

if TYPE_CHECKING:
    from collections.abc import Awaitable

    import grpc
    from sqlalchemy import Connection

UNREACHABLE_COUNTRIES = frozenset({"Atlantis"})


class Shipping(ShippingServiceServicer):
    """Answers the calls of `shop.shipping.v1.ShippingService`."""

    def __init__(self, calls: KeyedCalls) -> None:
        self._calls = calls

    async def Ship(
        self,
        request: ShipRequest,
        context: grpc.aio.ServicerContext[ShipRequest, Awaitable[ShipResponse]],
    ) -> ShipResponse:
        return await self._calls.once(request, _ship, ShipResponse, context)


def _ship(connection: Connection, request: ShipRequest) -> Answer[ShipResponse]:
    if request.country in UNREACHABLE_COUNTRIES:
        raise Rejected(f"the carrier does not deliver to {request.country}", reason="COUNTRY_NOT_SERVED")
    shipment_id = new_id("parcel")
    connection.execute(
        insert(shipment).values(
            shipment_id=shipment_id,
            order_id=request.order_id,
            reservation_id=request.reservation_id,
            country=request.country,
            saga_id=current_step().saga_id,
        )
    )
    return Answer(ShipResponse(shipment_id=shipment_id))
