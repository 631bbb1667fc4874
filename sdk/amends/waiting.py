"""Waits for the end of a saga, over restarts of the coordinator, for as long as the caller wants to."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from google.protobuf import duration_pb2

from amends.coordinator_calls import Pauses
from amends.errors import CoordinatorUnavailableError, WaitTimeoutError
from amends.v1 import saga_pb2, saga_service_pb2

if TYPE_CHECKING:
    from amends.coordinator_calls import CoordinatorCalls

LONGEST_WAIT = timedelta(seconds=60)
LONGEST_WAIT_S = LONGEST_WAIT.total_seconds()
"""The longest that the coordinator holds one question about the end of a saga."""
WAIT_MARGIN_S = 5.0
"""What the deadline of that question leaves for the way."""
SHORTEST_WAIT = timedelta(milliseconds=100)
SHORTEST_WAIT_S = SHORTEST_WAIT.total_seconds()
"""An answer "not yet" that comes sooner than this is followed by a pause, so that nobody is asked in a tight loop."""
ENDS = frozenset(
    {saga_pb2.Saga.STATE_COMMITTED, saga_pb2.Saga.STATE_COMPENSATED, saga_pb2.Saga.STATE_COMPENSATION_FAILED}
)
"""The states in which there is something to tell; the last one waits for a person."""


async def wait_for_end(calls: CoordinatorCalls, saga_id: str, timeout: timedelta | None) -> saga_pb2.Saga:
    """The saga once it has ended or can't go on without a person.

    Raises:
        WaitTimeoutError: it hadn't when the timeout was over; it says so if no coordinator answered meanwhile.
        SagaNotFoundError: no saga has this id.
    """
    with calls.notices.about(saga_id):
        return await _wait(calls, saga_id, timeout)


async def _wait(calls: CoordinatorCalls, saga_id: str, timeout: timedelta | None) -> saga_pb2.Saga:
    give_up_at = None if timeout is None else asyncio.get_running_loop().time() + timeout.total_seconds()
    pauses = Pauses()
    trouble: CoordinatorUnavailableError | None = None
    while True:
        left_s = LONGEST_WAIT_S if give_up_at is None else give_up_at - asyncio.get_running_loop().time()
        if left_s <= 0:
            raise WaitTimeoutError(_not_ended(saga_id, timeout, trouble)) from trouble
        asked_at = asyncio.get_running_loop().time()
        try:
            saga = await _ask(calls, saga_id, min(left_s, LONGEST_WAIT_S))
        except CoordinatorUnavailableError as error:
            # A coordinator that restarts: the saga goes on when it is back, and so do we.
            trouble, pause_s = error, pauses.next_s(error.retry_delay)
            calls.notices.unheard(error)
        else:
            if saga.state in ENDS:
                return saga
            trouble, pauses, pause_s = None, Pauses(), SHORTEST_WAIT_S - (asyncio.get_running_loop().time() - asked_at)
        await asyncio.sleep(max(0.0, min(pause_s, left_s)))


async def _ask(calls: CoordinatorCalls, saga_id: str, wait_s: float) -> saga_pb2.Saga:
    wait_timeout = duration_pb2.Duration()
    wait_timeout.FromTimedelta(timedelta(seconds=wait_s))
    answer = await calls.attempt(
        lambda stub: stub.WaitSaga,
        saga_service_pb2.WaitSagaRequest(saga_id=saga_id, wait_timeout=wait_timeout),
        doing=f"waiting for saga {saga_id!r}",
        timeout_s=wait_s + WAIT_MARGIN_S,
    )
    return answer.saga


def _not_ended(saga_id: str, timeout: timedelta | None, trouble: CoordinatorUnavailableError | None) -> str:
    if trouble is not None:
        return (
            f"nothing was heard of saga {saga_id!r} within {timeout}; wait again when a coordinator answers: {trouble}"
        )
    return (
        f"saga {saga_id!r} hadn't ended after {timeout}; it goes on, wait again with client.handle(saga, {saga_id!r})"
    )
