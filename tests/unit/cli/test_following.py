"""Following sagas: what a cancellation becomes that gRPC keeps to itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, cast

import grpc
import pytest

from amends.cli.following import changes_of, lists_of
from amends.v1.saga_service_pb2 import ListSagasRequest

if TYPE_CHECKING:
    from amends.v1.saga_service_pb2_grpc import SagaServiceStub


class EndsAsItIsCancelled:
    """Calls that end with a status in the moment in which they are cancelled, as gRPC tells it then. It is not gRPC:
    nobody can have a real call end in just that moment.
    """

    def __init__(self) -> None:
        self.called = asyncio.Event()

    async def ListSagas(self, _: object, timeout: float) -> None:
        """A unary call."""
        del timeout
        await self._wait()

    def WatchSaga(self, _: object) -> EndsAsItIsCancelled:
        """A stream."""
        return self

    def cancel(self) -> None:
        """Nothing is left to cancel."""

    def __aiter__(self) -> EndsAsItIsCancelled:
        return self

    async def __anext__(self) -> None:
        await self._wait()

    async def _wait(self) -> None:
        self.called.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing) from None


def lists(sagas: SagaServiceStub) -> AsyncGenerator[object]:
    """What a list is followed with."""
    return lists_of(sagas, ListSagasRequest(), lambda: 1, lambda: None)


def changes(sagas: SagaServiceStub) -> AsyncGenerator[object]:
    """What one saga is followed with."""
    return changes_of(sagas, "s", lambda: None)


@pytest.mark.parametrize("follow", [lists, changes])
async def test_a_cancellation_is_heard_although_grpc_keeps_it(
    follow: Callable[[SagaServiceStub], AsyncGenerator[object]],
) -> None:
    """Ctrl-C ends `amends saga watch` at the first time, whatever moment it comes in."""
    calls = EndsAsItIsCancelled()
    following = asyncio.ensure_future(anext(follow(cast("SagaServiceStub", calls))))
    await calls.called.wait()
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
