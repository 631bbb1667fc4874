"""Watches a saga's changes, over restarts of the coordinator: nothing is missed, and nothing is told twice."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from amends.coordinator_calls import Pauses
from amends.errors import CoordinatorUnavailableError
from amends.v1 import saga_service_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from amends.coordinator_calls import CoordinatorCalls
    from amends.v1 import saga_pb2


async def watch_saga(calls: CoordinatorCalls, saga_id: str) -> AsyncGenerator[saga_pb2.Saga]:
    """The saga as it is, then after each change, until nothing is left to do.

    A stream that breaks is opened again with the count of the last message. For how long that is tried begins anew
    with every stream that told something, or that stood for longer than an answered call may take.

    Raises:
        CoordinatorUnavailableError: no coordinator answered for as long as calls are repeated.
        CoordinatorError: it refused, with its reason.
    """
    request = saga_service_pb2.WatchSagaRequest(saga_id=saga_id)
    pauses, failing_since = Pauses(), None
    while True:
        opened_at, told = asyncio.get_running_loop().time(), False
        try:
            async with aclosing(
                calls.stream(lambda stub: stub.WatchSaga, request, doing=f"watching saga {saga_id!r}")
            ) as messages:
                async for message in messages:
                    request.known_write_count, told = message.saga.write_count, True
                    yield message.saga
            return
        except CoordinatorUnavailableError as error:
            failed_at = asyncio.get_running_loop().time()
            if failing_since is None or told or failed_at - opened_at > calls.bounds.call_timeout_s:
                pauses, failing_since = Pauses(), failed_at
            pause_s = pauses.next_s(error.retry_delay)
            if failed_at + pause_s > failing_since + calls.bounds.unavailable_timeout_s:
                raise
            calls.notices.unheard(error)
        await asyncio.sleep(pause_s)
