"""An inventory whose handlers do what a test tells them, and the metadata that a coordinator would send."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import grpc

from shop.inventory.v1.inventory_pb2 import ReleaseRequest, ReleaseResponse, ReserveRequest, ReserveResponse
from shop.inventory.v1.inventory_pb2_grpc import InventoryServiceServicer

SERVICE = "shop.inventory.v1.InventoryService"
RESERVE = f"{SERVICE}/Reserve"

# Nothing listens there; a participant serves all the same while it looks for its coordinator.
NO_COORDINATOR = "127.0.0.1:1"

ReserveContext = grpc.aio.ServicerContext[ReserveRequest, Awaitable[ReserveResponse]]
Behaviour = Callable[[ReserveRequest, ReserveContext], Awaitable[ReserveResponse]]


async def reserve_at_once(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
    """Succeeds."""
    return ReserveResponse(reservation_id="r-1")


class Inventory(InventoryServiceServicer):
    """Reserves as it is told and releases at once."""

    def __init__(self, reserve: Behaviour = reserve_at_once) -> None:
        self._reserve = reserve

    async def Reserve(self, request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        return await self._reserve(request, context)

    async def Release(
        self, request: ReleaseRequest, context: grpc.aio.ServicerContext[ReleaseRequest, Awaitable[ReleaseResponse]]
    ) -> ReleaseResponse:
        return ReleaseResponse()


PlainBehaviour = Callable[[ReserveRequest, grpc.ServicerContext], ReserveResponse]


class PlainInventory(Inventory):
    """The same with a plain `Reserve`, which runs in a thread, beside its asynchronous `Release`."""

    def __init__(self, reserve: PlainBehaviour) -> None:
        super().__init__()
        self._plain = reserve

    def Reserve(  # type: ignore[override] # the stubs that are generated here know asynchronous handlers only
        self,
        request: ReserveRequest,
        context: grpc.ServicerContext,  # pyright: ignore[reportIncompatibleMethodOverride] # the same
    ) -> ReserveResponse:
        return self._plain(request, context)


def as_step(saga_id: str = "order-1", **others: str) -> tuple[tuple[str, str], ...]:
    """What a coordinator sends with the action of step "reserve"; others are added, with "-" for "_"."""
    metadata = {
        "idempotency-key": f"{saga_id}/reserve/action",
        "amends-key-uuid": "8a6e0804-2bd0-5672-b79d-d97027f9071a",
        "amends-ledger": "default",
        "amends-saga-id": saga_id,
        "amends-step": "reserve",
        "amends-kind": "compensatable",
        "amends-direction": "action",
        "amends-attempt": "1",
        "amends-step-time": "2026-11-30T10:00:00Z",
    }
    return tuple({**metadata, **{key.replace("_", "-"): value for key, value in others.items()}}.items())
