"""`WatchSaga` over real gRPC: what is streamed, how a stream ends, and what it is refused with."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest

from amends.v1 import saga_pb2
from amends.v1 import saga_service_pb2 as pb
from amends_coordinator.ports.driving import StoppingError, TooManyWatchersError
from amends_coordinator.ports.ledger import LedgerUnavailableError
from tests.integration.api.conftest import start_request
from tests.integration.api.refusals import refused
from tests.waiting import eventually, pause

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.api.conftest import Served

Code = grpc.StatusCode
BOUND_S = 10


def watch(
    served: Served, saga_id: str = "s-1", *, known: int = 0
) -> grpc.aio.UnaryStreamCall[pb.WatchSagaRequest, pb.WatchSagaResponse]:
    """A stream of the saga's changes."""
    request = pb.WatchSagaRequest(saga_id=saga_id, known_write_count=known)
    return served.sagas.WatchSaga(request, timeout=BOUND_S)


async def started(served: Served) -> None:
    """One saga that goes on until the test ends it."""
    await served.register()
    await served.sagas.StartSaga(start_request("s-1"))


async def test_a_saga_is_streamed_with_its_rows_to_its_end(served: Served) -> None:
    """Each message is what `GetSaga` answers, and the last one is the end; a known count is not told again."""
    await started(served)
    stream = watch(served)
    messages = aiter(stream)
    first = await anext(messages)
    assert first.saga == (await served.sagas.GetSaga(pb.GetSagaRequest(saga_id="s-1"))).saga
    known = aiter(watch(served, known=first.saga.write_count))
    await served.driving.end("s-1")
    last = await anext(messages)
    assert (last.saga.state, last.saga.write_count) == (saga_pb2.Saga.STATE_COMMITTED, 2)
    assert [message.saga.write_count async for message in messages] == []
    assert await stream.code() is Code.OK
    assert [message.saga.write_count async for message in known] == [2]


async def test_a_client_that_leaves_leaves_nothing_behind(served: Served) -> None:
    """A stream that is cancelled, or whose deadline is over, ends at the coordinator, too."""
    await started(served)
    stream = watch(served)
    await stream.read()
    short = served.sagas.WatchSaga(pb.WatchSagaRequest(saga_id="s-1"), timeout=1)
    await short.read()
    assert served.driving.watching == 2
    stream.cancel()
    await eventually(lambda: served.driving.watching == 1, what="the cancelled one is gone")
    await eventually(lambda: served.driving.watching == 0, what="the other one is gone with its deadline")


async def test_a_client_that_does_not_read_is_sent_no_more_than_fits(served: Served) -> None:
    """What a slow client hasn't taken waits at the engine, which keeps the newest only; gRPC's buffers are bounded."""
    await started(served)
    stream = watch(served)
    await stream.read()
    changes = 150
    for _ in range(changes):
        await served.driving.grow("s-1", size=100_000)
        await pause()  # whoever can go on does
    await served.driving.end("s-1")
    counts: list[int] = []
    while (message := await stream.read()) is not grpc.aio.EOF:
        assert isinstance(message, pb.WatchSagaResponse)
        counts.append(message.saga.write_count)
    assert counts == sorted(set(counts))
    assert counts[-1] == changes + 2
    assert len(counts) < changes / 2, f"{len(counts)} were kept for the client"
    assert served.driving.told == len(counts) + 1


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (lambda: StoppingError("stopping"), Code.UNAVAILABLE, "STOPPING"),
        (lambda: TooManyWatchersError(7), Code.RESOURCE_EXHAUSTED, "TOO_MANY_WATCHERS"),
        (lambda: LedgerUnavailableError("away"), Code.UNAVAILABLE, "LEDGER_UNAVAILABLE"),
        (lambda: ValueError("a secret"), Code.INTERNAL, "COORDINATOR_FAULT"),
    ],
)
async def test_how_a_stream_is_refused(served: Served, error: Callable[[], Exception], code: Code, reason: str) -> None:
    """Before and after its first message a stream ends with a reason, like every other call."""
    await started(served)
    stream = watch(served)
    await stream.read()
    await served.driving.refuse_watchers(error())
    for asked in (stream, watch(served)):
        refusal = await refused(asked.read())
        assert (refusal.code, refusal.reason) == (code, reason)
        assert "secret" not in refusal.message


async def test_what_is_wrong_with_a_request(served: Served) -> None:
    """Malformed fields are named, and so is a saga that isn't there."""
    refusal = await refused(watch(served, "a b", known=-1).read())
    assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, "INVALID_REQUEST")
    assert refusal.paths == ("saga_id", "known_write_count")
    missing = await refused(watch(served, "nobody").read())
    assert (missing.code, missing.reason, missing.resource) == (Code.NOT_FOUND, "SAGA_NOT_FOUND", "nobody")


async def test_a_reader_that_does_not_read_does_not_hold_up_a_stop(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """A stopping server counts answers that are on their way, not streams: they end with the engine or are cut off."""
    await started(served)
    await watch(served).read()
    await asyncio.wait_for(served.api.stop(60), BOUND_S)
    assert caplog.text == ""
