"""The standard health service: SERVING for the process and each of its services, NOT_SERVING once it stops."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    import grpc

# grpcio-health-checking ships no types and hides its asyncio servicer from checkers, hence Any and the import by name.
_health: Any = importlib.import_module("grpc_health.v1.health")
_messages: Any = importlib.import_module("grpc_health.v1.health_pb2")
_services: Any = importlib.import_module("grpc_health.v1.health_pb2_grpc")


class Health:
    """What one server says about itself."""

    def __init__(self) -> None:
        self._servicer = _health.aio.HealthServicer()

    async def serve(self, services: Iterable[str], server: grpc.aio.Server) -> None:
        """Answer at the server, before it starts: SERVING for it ("") and for each service."""
        _services.add_HealthServicer_to_server(self._servicer, server)
        for name in services:
            await self._servicer.set(name, _messages.HealthCheckResponse.SERVING)

    async def stop_serving(self) -> None:
        """NOT_SERVING for all of them, for good."""
        await self._servicer.enter_graceful_shutdown()
