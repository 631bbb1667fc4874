"""The payments service as a process that stops for ever at chosen points of chosen sagas, to be killed there.

Each point is `SAGA:METHOD:begin`, before anything is written down, or `SAGA:METHOD:end`, when everything is and only
the answer is missing. What lies between them the card provider holds. A point that is reached is a file in DATA/held.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from amends import NotInStep, ParticipantServer, StepContext
from hosting.database import open_database
from hosting.serving import database_path
from shop.cards.client import Http
from shop.payments.service import PAYMENTS, payments_at

if TYPE_CHECKING:
    from google.protobuf.message import Message

FOR_EVER_S = 600.0


class HeldCalls(grpc.aio.ServerInterceptor):
    """Stops calls where they come and where their answer would leave."""

    def __init__(self, data: Path, points: list[str]) -> None:
        self._folder, self._points = data / "held", frozenset(points)
        self._folder.mkdir(exist_ok=True)

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:  # Any: as in gRPC's stubs
        """Stands around the handler of one call."""
        handler = await continuation(handler_call_details)
        try:
            saga_id = StepContext.from_metadata(handler_call_details.invocation_metadata).saga_id
        except NotInStep:
            return handler
        method = handler_call_details.method.rpartition("/")[2]

        async def held(request: Message, context: object) -> object:
            await self._reach(f"{saga_id}:{method}:begin")
            response = await handler.unary_unary(request, context)
            await self._reach(f"{saga_id}:{method}:end")
            return response

        return grpc.unary_unary_rpc_method_handler(
            held, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
        )

    async def _reach(self, point: str) -> None:
        if point in self._points:
            (self._folder / point).touch()
            await asyncio.Event().wait()


async def serve(chosen: argparse.Namespace) -> None:
    """Serves until it is killed or told to stop."""
    service = payments_at(Http(chosen.cards, timeout_s=FOR_EVER_S))
    database = open_database(database_path(chosen.data, PAYMENTS), service.tables)
    around = (HeldCalls(chosen.data, chosen.hold),)
    server = ParticipantServer(PAYMENTS, coordinator=chosen.coordinator, port=chosen.port, interceptors=around)
    server.add(service.servicer(database))
    await server.start()
    sys.stdout.write(f"listening on 127.0.0.1:{server.port}\n")
    sys.stdout.flush()
    await server.serve()
    await database.close()


def main() -> None:
    """Reads the command line and serves."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--coordinator", required=True)
    parser.add_argument("--cards", required=True)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--hold", action="append", default=[])
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
