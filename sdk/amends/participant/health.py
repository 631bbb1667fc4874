"""The standard health service: SERVING for the process and each of its services, NOT_SERVING once it stops.

The library's own servicer keeps the streams of those who watch open for ever, and a server that stops waits for open
streams for the whole of its grace. This one ends them after it has said NOT_SERVING.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterable
from typing import Any

import grpc

# grpcio-health-checking ships no types, hence Any and the import by name.
_messages: Any = importlib.import_module("grpc_health.v1.health_pb2")
_services: Any = importlib.import_module("grpc_health.v1.health_pb2_grpc")
_Answer: Any = _messages.HealthCheckResponse


class Health:
    """What one server says about itself, served as `grpc.health.v1.Health`."""

    def __init__(self, services: Iterable[str]) -> None:
        self._known = frozenset(("", *services))
        self._stopping = asyncio.Event()

    def serve_at(self, server: grpc.aio.Server) -> None:
        """Answer at the server, which hasn't started yet."""
        _services.add_HealthServicer_to_server(self, server)

    def stop_serving(self) -> None:
        """Say NOT_SERVING from now on, and end the streams of those who watch with it."""
        self._stopping.set()

    async def Check(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> object:  # noqa: N802 - named by the RPC
        """How a service is; NOT_FOUND for one that isn't served here."""
        if request.service not in self._known:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service} here")
        return _Answer(status=self._now())

    async def Watch(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:  # noqa: N802 - named by the RPC
        """How a service is, now and at the end; SERVICE_UNKNOWN for one that isn't served here."""
        known = request.service in self._known
        first = self._now() if known else _Answer.SERVICE_UNKNOWN
        await context.write(_Answer(status=first))
        await self._stopping.wait()
        if first == _Answer.SERVING:
            await context.write(_Answer(status=_Answer.NOT_SERVING))

    async def List(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> object:  # noqa: N802 - named by the RPC
        """How all services are; releases of the health service before 2025 don't ask for it."""
        return _messages.HealthListResponse(statuses={name: _Answer(status=self._now()) for name in self._known})

    def _now(self) -> int:
        status: int = _Answer.NOT_SERVING if self._stopping.is_set() else _Answer.SERVING
        return status
