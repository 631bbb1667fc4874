"""The client of a rehearsal: the SDK's own, over a channel that needs no network, with ids from the seed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import Message

from amends.client import SagaClient
from amends.coordinator_calls import Bounds, CoordinatorCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import grpc.aio

    from amends.saga import Saga
    from amends.v1 import saga_service_pb2

In = TypeVar("In", bound=Message)
Out = TypeVar("Out", bound=Message | None)

TARGET = "rehearsal:7070"
CALL_TIMEOUT_S = 10.0
PATIENCE = timedelta(hours=1)
"""How long it goes on asking while there is no coordinator, because one was killed."""


class RehearsedClient(SagaClient):
    """A `SagaClient` whose coordinator is a rehearsal's.

    Args:
        channel: to the coordinator.
        new_saga_id: makes the ids of sagas that are started without one.
    """

    def __init__(self, channel: grpc.aio.Channel, *, new_saga_id: Callable[[], str]) -> None:
        super().__init__(TARGET, unavailable_timeout=PATIENCE)
        self._handed, self._new_saga_id = channel, new_saga_id

    async def __aenter__(self) -> SagaClient:
        bounds = Bounds(CALL_TIMEOUT_S, PATIENCE.total_seconds())
        self._calls = CoordinatorCalls(TARGET, credentials=None, options=(), bounds=bounds, channel=self._handed)
        return self

    def _start_request(
        self, saga: Saga[In, Out], message: In, saga_id: str | None, labels: Mapping[str, str] | None
    ) -> saga_service_pb2.StartSagaRequest:
        chosen = self._new_saga_id() if saga_id is None else saga_id
        return super()._start_request(saga, message, chosen, labels)
