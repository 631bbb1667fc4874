"""`SagaClient.watch` against a real gRPC server: it goes on where a stream broke off, for as long as it may."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from datetime import timedelta

import grpc
import pytest

from amends import (
    ClientClosedError,
    CoordinatorError,
    CoordinatorUnavailableError,
    SagaClient,
    SagaNotFoundError,
)
from amends.v1 import saga_pb2
from amends.v1 import saga_service_pb2 as api
from tests.unit.sdk_initiator.coordinator import Refusal, TellingCoordinator, error_info, serving
from tests.unit.sdk_initiator.travel import whole_saga
from tests.waiting import eventually

State = saga_pb2.Saga


@pytest.fixture(autouse=True)
async def trip(coordinator: TellingCoordinator) -> None:
    """The coordinator knows one saga, which has been written once."""
    coordinator.sagas["trip-1"] = written(1)


def written(count: int, state: State.State.ValueType = State.STATE_RUNNING) -> State:
    """The saga of these tests after so many writes."""
    return State(saga_id="trip-1", state=state, write_count=count)


def known(coordinator: TellingCoordinator) -> list[int]:
    """What each stream was asked to begin after."""
    requests = [asked.request for asked in coordinator.asked]
    return [each.known_write_count for each in requests if isinstance(each, api.WatchSagaRequest)]


async def test_every_change_comes_and_the_end_ends_it(client: SagaClient, coordinator: TellingCoordinator) -> None:
    """The saga as it is, then each change, by client and by handle."""
    by_client, by_handle = client.watch("trip-1"), client.handle(whole_saga(), "trip-1").watch()
    for watch in (by_client, by_handle):
        assert (await anext(watch)).write_count == 1
    await coordinator.end(written(2, State.STATE_COMMITTED))
    for watch in (by_client, by_handle):
        assert [saga.write_count async for saga in watch] == [2]


async def test_a_stream_that_breaks_goes_on_where_it_was(coordinator: TellingCoordinator) -> None:
    """Over restarts nothing is missed and nothing is told twice: what is known goes with the next request."""
    async with AsyncExitStack() as stack:
        async with serving(coordinator) as address:
            client = await stack.enter_async_context(SagaClient(address, unavailable_timeout=timedelta(seconds=30)))
            watch = client.watch("trip-1")
            assert (await anext(watch)).write_count == 1
        coming = asyncio.ensure_future(anext(watch))
        await coordinator.end(written(4))
        coordinator.refusals.append(Refusal(grpc.StatusCode.UNAVAILABLE, details=[error_info("STOPPING")]))
        coordinator.refusals.append(Refusal(grpc.StatusCode.CANCELLED))
        async with serving(coordinator, port=int(address.rpartition(":")[2])):
            assert (await coming).write_count == 4
            await coordinator.end(written(5, State.STATE_COMMITTED))
            assert [saga.write_count async for saga in watch] == [5]
    assert known(coordinator) == [0, 1, 1, 1]


async def test_it_gives_up_when_nobody_answers_for_long(coordinator: TellingCoordinator) -> None:
    """`unavailable_timeout` bounds how long a broken stream is opened again."""
    away = Refusal(grpc.StatusCode.UNAVAILABLE, details=[error_info("LEDGER_UNAVAILABLE")])
    coordinator.refusals.extend([away, away])
    async with AsyncExitStack() as stack:
        async with serving(coordinator) as address:
            client = await stack.enter_async_context(SagaClient(address, unavailable_timeout=timedelta(seconds=1)))
            watch = client.watch("trip-1")
            assert (await anext(watch)).write_count == 1
        with pytest.raises(CoordinatorUnavailableError, match="watching saga 'trip-1': no coordinator answers"):
            await anext(watch)


@pytest.mark.parametrize(
    ("reason", "code", "raised"),
    [
        ("SAGA_NOT_FOUND", grpc.StatusCode.NOT_FOUND, SagaNotFoundError),
        ("TOO_MANY_WATCHERS", grpc.StatusCode.RESOURCE_EXHAUSTED, CoordinatorError),
    ],
)
async def test_a_refusal_is_told(
    client: SagaClient,
    coordinator: TellingCoordinator,
    reason: str,
    code: grpc.StatusCode,
    raised: type[CoordinatorError],
) -> None:
    """What won't get better by asking again is raised with its reason."""
    coordinator.refusals.append(Refusal(code, details=[error_info(reason)]))
    with pytest.raises(raised) as caught:
        await anext(client.watch("trip-1"))
    assert caught.value.reason == reason


async def test_whoever_leaves_ends_the_stream(client: SagaClient, coordinator: TellingCoordinator) -> None:
    """Breaking off a loop, a cancelled task and a closed client leave nothing open at the coordinator."""
    async with aclosing(client.watch("trip-1")) as watch:
        await anext(watch)
        assert coordinator.watching == 1
    await eventually(lambda: coordinator.watching == 0, what="it is gone with the loop")
    task = asyncio.ensure_future(_watch_on(client))
    await eventually(lambda: coordinator.watching == 1, what="another one watches")
    task.cancel()
    await eventually(lambda: coordinator.watching == 0, what="it is gone with its task")
    other = asyncio.ensure_future(_watch_on(client))
    await eventually(lambda: coordinator.watching == 1, what="a third one watches")
    await client.close()
    with pytest.raises(ClientClosedError):
        await other
    with pytest.raises(ClientClosedError):
        client.watch("trip-1")


async def _watch_on(client: SagaClient) -> None:
    async for _ in client.watch("trip-1"):
        pass
