"""Follows sagas over restarts of the coordinator: one by its stream, many by asking again and again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager

import grpc

from amends.cli.connection import BROKEN_OFF
from amends.cli.listing import newest
from amends.coordinator_calls import Pauses
from amends.v1.saga_pb2 import Saga
from amends.v1.saga_service_pb2 import ListSagasRequest, WatchSagaRequest
from amends.v1.saga_service_pb2_grpc import SagaServiceStub

ASK_INTERVAL_S = 1.0
"""How often the list is asked for."""

Lost = Callable[[], None]


async def changes_of(sagas: SagaServiceStub, saga_id: str, lost: Lost) -> AsyncGenerator[Saga]:
    """A saga as it is, then each time it changes, until nothing is left to do.

    Arguments:
        sagas: the coordinator.
        saga_id: the saga.
        lost: called each time the coordinator doesn't answer any more; it is asked until it does. Before it has
            answered once, that is an error instead.
    """
    request, pauses, heard = WatchSagaRequest(saga_id=saga_id), Pauses(), False
    while True:
        stream = sagas.WatchSaga(request)
        try:
            async for message in stream:
                request.known_write_count, pauses, heard = message.saga.write_count, Pauses(), True
                yield message.saga
            return
        except grpc.aio.AioRpcError as error:
            with _cancellation_heard():
                if not heard or error.code() not in BROKEN_OFF:
                    raise
        finally:
            stream.cancel()
        lost()
        await asyncio.sleep(pauses.next_s())


async def lists_of(
    sagas: SagaServiceStub, wanted: ListSagasRequest, limit: Callable[[], int], lost: Lost
) -> AsyncGenerator[list[Saga]]:
    """The newest sagas of those that are wanted, again and again; `limit` says how many, `lost` is as above."""
    pauses, heard = Pauses(), False
    while True:
        try:
            with _cancellation_heard():
                found = [saga async for saga in newest(sagas, wanted, limit())]
        except grpc.aio.AioRpcError as error:
            if not heard or error.code() not in BROKEN_OFF:
                raise
            lost()
            await asyncio.sleep(pauses.next_s())
            continue
        pauses, heard = Pauses(), True
        yield found
        await asyncio.sleep(ASK_INTERVAL_S)


@contextmanager
def _cancellation_heard() -> Generator[None]:
    """gRPC keeps a cancellation to itself where a call ends in the same moment, and Ctrl-C would be lost."""
    try:
        yield
    finally:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
