"""A participant as a process of its own: `python -m tests.integration.participant.process COORDINATOR`."""

from __future__ import annotations

import asyncio
import logging
import sys

from amends import ParticipantServer
from shop.inventory.v1.inventory_pb2 import ReserveRequest, ReserveResponse
from tests.integration.participant.calls import Inventory, ReserveContext


async def reserve(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
    """Says that it began, and ends when it is told to by a line of input."""
    sys.stdout.write("reserving\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)
    return ReserveResponse(reservation_id="r-1")


async def serve(coordinator: str) -> None:
    """Serves until it is told to stop."""
    server = ParticipantServer("inventory", coordinator=coordinator)
    server.add(Inventory(reserve))
    await server.serve()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    asyncio.run(serve(sys.argv[1]))
