"""Serves one service of the shop over real gRPC in the test's own process, and calls it the way a coordinator does."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from amends import ParticipantServer
from shop.calls import KeyedCalls
from shop.database import open_database
from shop.holds import ReplyHold
from shop.inventory.tables import FIRST_STOCK, fill_shelves
from shop.process import SERVICES, database_path

# Nothing listens there; a participant serves all the same while it looks for its coordinator.
NO_COORDINATOR = "127.0.0.1:1"


@asynccontextmanager
async def serving(name: str, data: Path, *, holds: Sequence[ReplyHold] = ()) -> AsyncGenerator[grpc.aio.Channel]:
    """A channel to the service, which keeps its database in `data`."""
    service = SERVICES[name]
    engine = open_database(database_path(data, name), service.tables)
    try:
        if name == "inventory":
            fill_shelves(engine, FIRST_STOCK)
        server = ParticipantServer(name, coordinator=NO_COORDINATOR, port=0)
        server.add(service.servicer(KeyedCalls(engine, service.tables, holds=holds)))
        async with server, grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield channel
    finally:
        engine.dispose()


def as_step(
    step: str, *, saga_id: str = "saga-1", direction: str = "action", attempt: int = 1
) -> tuple[tuple[str, str], ...]:
    """The metadata that a coordinator sends with a call."""
    metadata = {
        "idempotency-key": f"{saga_id}/{step}/{direction}",
        "amends-key-uuid": "00000000-0000-5000-8000-000000000000",
        "amends-ledger": "default",
        "amends-saga-id": saga_id,
        "amends-step": step,
        "amends-kind": "COMPENSATABLE",
        "amends-direction": direction.upper(),
        "amends-attempt": str(attempt),
    }
    if direction != "action":
        metadata["amends-action-key"] = f"{saga_id}/{step}/action"
        metadata["amends-action-key-uuid"] = "00000000-0000-5000-8000-000000000001"
    if direction == "compensation":
        metadata["amends-action-target"] = "same"
    return tuple(metadata.items())
