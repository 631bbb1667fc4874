"""The client of a rehearsal: the SDK's own, over a channel that needs no network."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from amends.client import SagaClient
from amends.coordinator_calls import Bounds, CoordinatorCalls

if TYPE_CHECKING:
    import grpc.aio

TARGET = "rehearsal:7070"
CALL_TIMEOUT_S = 10.0
PATIENCE = timedelta(hours=1)
"""How long it goes on asking while there is no coordinator, because one was killed."""


class RehearsedClient(SagaClient):
    """A `SagaClient` whose coordinator is a rehearsal's."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        super().__init__(TARGET, unavailable_timeout=PATIENCE)
        self._handed = channel

    async def __aenter__(self) -> SagaClient:
        bounds = Bounds(CALL_TIMEOUT_S, PATIENCE.total_seconds())
        self._calls = CoordinatorCalls(TARGET, credentials=None, options=(), bounds=bounds, channel=self._handed)
        return self
