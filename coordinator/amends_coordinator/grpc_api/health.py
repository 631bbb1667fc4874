"""The standard health service, as its package ships it: what of the process works, by name."""

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

READINESS, LIVENESS, LEDGER, SWEEPER = "readiness", "liveness", "ledger", "sweeper"
"""Names beside those of the services."""


class _Servicer(Protocol):
    """What we use of the packaged health servicer."""

    async def set(self, service: str, status: int) -> None: ...

    async def enter_graceful_shutdown(self) -> None: ...


class Health:
    """What `grpc.health.v1.Health` answers.

    The process as a whole (""), `readiness` and each of its services: whether requests will be answered. `ledger`:
    whether it can be written. `sweeper`: whether the loop that finds what is due makes its passes. `liveness`: whether
    the process is there at all; a database that is away is no reason to start another one.
    """

    def __init__(self, server: grpc.aio.Server, services: Iterable[str]) -> None:
        self._ready_names = (OVERALL, READINESS, *services)
        self._said: dict[str, bool] = {}
        self._servicer: _Servicer = _health.aio.HealthServicer()
        _health_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def tell(self, *, ledger: bool = True, sweeper: bool = True) -> None:
        """Say what works. After `end` nothing changes any more.

        Args:
            ledger: whether the ledger answers.
            sweeper: whether the sweeper makes its passes, or fails to make them for want of the ledger only.
        """
        says = {LIVENESS: True, LEDGER: ledger, SWEEPER: sweeper}
        says |= dict.fromkeys(self._ready_names, ledger and sweeper)
        for name, serving in says.items():
            if self._said.get(name) is not serving:
                self._said[name] = serving
                answer = health_pb2.HealthCheckResponse
                await self._servicer.set(name, answer.SERVING if serving else answer.NOT_SERVING)

    async def end(self) -> None:
        """Say for good that requests won't be answered."""
        await self._servicer.enter_graceful_shutdown()
