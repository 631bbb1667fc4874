"""A participant as a process of its own: `python -m tests.integration.participant.process COORDINATOR`."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

import grpc

from amends import ParticipantServer
from shop.inventory.v1.inventory_pb2 import ReleaseRequest, ReleaseResponse, ReserveRequest, ReserveResponse
from tests.integration.participant.calls import Inventory, ReserveContext


async def reserve(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
    """Says that it began, and ends when it is told to by a line of input."""
    say("reserving")
    await asyncio.to_thread(until_told)
    return ReserveResponse(reservation_id="r-1")


class HalfPlainInventory(Inventory):
    """Reserves on the loop and releases in a thread."""

    def Release(  # type: ignore[override] # the stubs that are generated here know asynchronous handlers only
        self,
        request: ReleaseRequest,
        context: grpc.ServicerContext,  # pyright: ignore[reportIncompatibleMethodOverride] # the same
    ) -> ReleaseResponse:
        """The same as `reserve`, in a thread."""
        say("releasing")
        until_told()
        return ReleaseResponse()


def until_told() -> None:
    """Waits for a line "go on" that nobody else has taken: what Python buffers of input is not for several threads."""
    os.read(sys.stdin.fileno(), len("go on\n"))


def say(word: str) -> None:
    """A line of output, at once."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def serve(coordinator: str) -> None:
    """Serves until it is told to stop."""
    server = ParticipantServer("inventory", coordinator=coordinator)
    server.add(HalfPlainInventory(reserve))
    await server.serve()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    asyncio.run(serve(sys.argv[1]))
