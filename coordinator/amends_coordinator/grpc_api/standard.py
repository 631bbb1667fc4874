"""The standard health service, as its package ships it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]  # ships no types

if TYPE_CHECKING:
    from collections.abc import Iterable

# Any: untyped, see above.
_health: Any = health
_health_grpc: Any = health_pb2_grpc

HEALTH_SERVICE = "grpc.health.v1.Health"
HEALTH_FILE: Any = health_pb2.DESCRIPTOR  # Any: untyped, see above
OVERALL = ""
"""The name under which health is asked for the whole process."""


class _Servicer(Protocol):
    """What we use of the packaged health servicer."""

    async def set(self, service: str, status: int) -> None: ...

    async def enter_graceful_shutdown(self) -> None: ...


class Health:
    """What `grpc.health.v1.Health` answers: the same for the whole process and for each of its services."""

    def __init__(self, server: grpc.aio.Server, services: Iterable[str]) -> None:
        self._names = (OVERALL, *services)
        self._serving: bool | None = None
        self._servicer: _Servicer = _health.aio.HealthServicer()
        _health_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def tell(self, *, serving: bool) -> None:
        """Say whether requests will be answered. After `end` nothing changes any more."""
        if serving != self._serving:
            self._serving = serving
            answer = health_pb2.HealthCheckResponse
            for name in self._names:
                await self._servicer.set(name, answer.SERVING if serving else answer.NOT_SERVING)

    async def end(self) -> None:
        """Say for good that requests won't be answered."""
        await self._servicer.enter_graceful_shutdown()
