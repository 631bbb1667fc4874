"""Starts in lists at a coordinator: each is what a call is, and no client harms another one or the memory."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
import pytest
from google.rpc import status_pb2  # type: ignore[import-untyped]  # ships no types

from amends.internal.v1alpha1 import start_service_pb2 as pb
from amends.internal.v1alpha1.start_service_pb2_grpc import StartServiceStub
from amends.v1 import saga_pb2
from amends.v1.saga_service_pb2 import GetSagaRequest, StartSagaRequest, StartSagaResponse
from amends_coordinator.definitions.catalog import Catalog
from amends_coordinator.grpc_api import start_stream
from amends_coordinator.grpc_api.gate import Gate
from amends_coordinator.grpc_api.handlers import Edge
from amends_coordinator.grpc_api.known_definitions import KnownDefinitions
from amends_coordinator.grpc_api.start_stream import StartStreams
from amends_coordinator.grpc_api.starting import Starting
from amends_coordinator.ports.ledger import LedgerUnavailableError
from scenario.v1 import scenario_pb2
from tests.integration.api.conftest import PAYLOAD_LIMIT_BYTES, start_request
from tests.integration.api.refusals import refused
from tests.unit.engine.rig import Telemetry
from tests.waiting import eventually, pause

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from tests.integration.api.conftest import Served

Code = grpc.StatusCode
SOON_S = 10
LARGE = scenario_pb2.DoRequest(name="x" * 30_000)


class Stream:
    """A stream as a client holds it."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.call = StartServiceStub(channel).OpenStarts()
        self._ends: list[pb.End] = []
        self.sizes: list[int] = []

    async def hello(self) -> pb.OpenStartsResponse:
        """The coordinator's first frame."""
        frame = await self.call.read()
        assert isinstance(frame, pb.OpenStartsResponse)
        return frame

    async def send(self, *starts: pb.Start, cancelled: Sequence[int] = ()) -> None:
        """One frame."""
        await self.call.write(pb.OpenStartsRequest(starts=starts, cancelled_start_ids=cancelled))

    async def ends(self, count: int) -> dict[int, pb.End]:
        """The next answers, so many of them."""
        found: dict[int, pb.End] = {}
        async with asyncio.timeout(SOON_S):
            while len(found) < count:
                frame = await self.call.read()
                assert isinstance(frame, pb.OpenStartsResponse), "the stream ended"
                self.sizes.append(len(frame.ends))
                found |= {end.start_id: end for end in frame.ends}
        return found


@pytest.fixture
async def stream(served: Served) -> AsyncIterator[Stream]:
    """A stream that is open, and a definition to start."""
    await served.register()
    stream = Stream(served.channel)
    await stream.hello()
    yield stream
    stream.call.cancel()


def start(start_id: int, request: StartSagaRequest | bytes, *, timeout_ms: int = 10_000, wait_s: int = 0) -> pb.Start:
    """A start to be sent."""
    if not isinstance(request, bytes):
        if wait_s:
            request.wait_timeout.seconds = wait_s
        request = request.SerializeToString()
    return pb.Start(start_id=start_id, request=request, timeout_ms=timeout_ms)


def answer(end: pb.End) -> StartSagaResponse:
    """What a start was answered."""
    assert not end.status, status_pb2.Status.FromString(end.status)
    return StartSagaResponse.FromString(end.response)


def reason(end: pb.End) -> str:
    """Why a start was refused: the status's code, and the reason in its first detail."""
    status: Any = status_pb2.Status.FromString(end.status)  # Any: untyped, see the imports
    return f"{status.code} {status.details[0].value.decode(errors='ignore')}"


async def test_the_coordinator_says_what_it_speaks(served: Served) -> None:
    """Frames of one version, and never more starts at once than it says."""
    stream = Stream(served.channel)
    assert await stream.hello() == pb.OpenStartsResponse(frame_version=pb.FRAME_VERSION_1, capacity=1_024)
    await stream.call.done_writing()
    assert await stream.call.code() is Code.OK


async def test_a_list_of_starts(stream: Stream, served: Served) -> None:
    """S9, S11: a full frame of starts is answered start by start, in frames within their bound, each durable."""
    await stream.send(*(start(number, start_request(f"s-{number}")) for number in range(300)))
    ends = await stream.ends(300)
    assert [answer(ends[number]).saga.saga_id for number in range(300)] == [f"s-{number}" for number in range(300)]
    assert all(answer(end).started for end in ends.values())
    assert max(stream.sizes) <= 256
    await stream.send(start(300, start_request("s-7")))
    assert not answer((await stream.ends(1))[300]).started
    assert (await served.sagas.GetSaga(GetSagaRequest(saga_id="s-299"))).saga.state == saga_pb2.Saga.STATE_RUNNING


async def test_a_full_frame_lets_others_have_their_turn(stream: Stream, served: Served) -> None:
    """L2: starts of one client are begun some at a time; between them the loop does what others ask for."""
    loop, seen, most = asyncio.get_running_loop(), 0, 0

    def look() -> None:
        nonlocal seen, most
        seen, most = len(served.driving.started), max(most, len(served.driving.started) - seen)
        if seen < 256:
            loop.call_soon(look)

    look()
    await stream.send(*(start(number, start_request(f"s-{number}")) for number in range(256)))
    await stream.ends(256)
    assert 0 < most <= 2 * start_stream.TURN


async def test_the_end_comes_with_the_start(stream: Stream, served: Served) -> None:
    """Starts, waits and ends: with a `wait_timeout` the answer is the saga's end; those that end first come first."""
    await stream.send(*(start(number, start_request(f"s-{number}"), wait_s=30) for number in (1, 2)))
    await eventually(lambda: served.driving.waiting == 2, what="both wait")
    await served.driving.end("s-2")
    assert answer((await stream.ends(1))[2]).saga.state == saga_pb2.Saga.STATE_COMMITTED
    await served.driving.end("s-1")
    assert answer((await stream.ends(1))[1]).saga.state == saga_pb2.Saga.STATE_COMMITTED


def malformed() -> dict[str, StartSagaRequest | bytes]:
    """Starts that are refused, each for another reason."""
    long_wait = start_request("s-2")
    long_wait.wait_timeout.seconds = 61
    return {
        "bytes": b"\xff\xff\xff",
        "fields": start_request("no id", name="No Name"),
        "wait": long_wait,
        "definition": start_request("s-2", name="unknown"),
        "input": start_request("s-2", payload=scenario_pb2.FindResponse()),
        "size": start_request("s-2", payload=scenario_pb2.DoRequest(name="x" * PAYLOAD_LIMIT_BYTES)),
        "in use": start_request("s-1", payload=scenario_pb2.DoRequest(name="other")),
    }


@pytest.mark.parametrize("kind", malformed())
async def test_a_refusal_is_the_one_of_a_call(stream: Stream, served: Served, kind: str) -> None:
    """The same code, message and details, byte by byte, whichever way a start comes; its neighbours are answered."""
    request = malformed()[kind]
    await served.sagas.StartSaga(start_request("s-1"))
    data = request if isinstance(request, bytes) else request.SerializeToString()
    channel: Any = served.channel  # Any: raw bytes, for which gRPC's stubs have no types
    with pytest.raises(grpc.aio.AioRpcError) as told:
        await channel.unary_unary("/amends.v1.SagaService/StartSaga")(data)
    await stream.send(start(1, start_request("s-3")), start(2, data), start(3, start_request("s-4")))
    ends = await stream.ends(3)
    assert answer(ends[1]).started
    assert answer(ends[3]).started
    assert ends[2].status == told.value.trailing_metadata()["grpc-status-details-bin"]


async def test_a_ledger_out_of_reach_refuses_one_start(stream: Stream, served: Served) -> None:
    """Database down: UNAVAILABLE with a delay, as a call; what needs no look into the ledger goes on."""
    served.ledger.fault = LedgerUnavailableError("away")
    await stream.send(
        start(1, start_request("s-1", payload=scenario_pb2.FindResponse())), start(2, start_request("s-2"))
    )
    ends = await stream.ends(2)
    assert "LEDGER_UNAVAILABLE" in reason(ends[1])
    assert answer(ends[2]).started


async def test_the_trace_is_the_starters(stream: Stream, served: Served) -> None:
    """The context of each start, not the stream's; what isn't one is ignored."""
    first = start(1, start_request("s-1"))
    first.traceparent, first.tracestate = f"00-{0xAF:032x}-{0x7:016x}-01", "k=v"
    second = start(2, start_request("s-2"))
    second.traceparent = "nonsense"
    await stream.send(first, second)
    await stream.ends(2)
    traces = {each.saga_id: (each.traceparent, each.tracestate) for each in served.driving.started}
    assert traces == {"s-1": (first.traceparent, "k=v"), "s-2": ("", "")}


async def test_one_of_many_is_cancelled_or_late(stream: Stream, served: Served) -> None:
    """Each start has its own deadline and its own cancel: nobody waits for those at the coordinator either, no answer
    is sent, and their sagas go on like all others.
    """
    await stream.send(
        start(1, start_request("s-1"), wait_s=30),
        start(2, start_request("s-2"), wait_s=30, timeout_ms=200),
        start(3, start_request("s-3"), wait_s=30),
    )
    await eventually(lambda: served.driving.waiting == 3, what="all wait")
    await stream.send(cancelled=[1, 77])
    await eventually(lambda: served.driving.waiting == 1, what="one waits")
    await served.driving.end("s-3")
    assert list(await stream.ends(1)) == [3]
    await stream.send(start(1, start_request("s-1")), start(2, start_request("s-2")))
    assert [answer(end).started for end in (await stream.ends(2)).values()] == [False, False]


@pytest.mark.parametrize("how", ["cancelled", "late", "gone"])
async def test_a_start_that_is_begun_is_begun(stream: Stream, served: Served, how: str) -> None:
    """A client that goes away changes nothing: the saga it was about to start is started."""
    served.driving.open_door.clear()
    await stream.send(start(1, start_request("s-1"), wait_s=30, timeout_ms=1 if how == "late" else 10_000))
    await served.driving.arrived.wait()
    if how == "cancelled":
        await stream.send(cancelled=[1])
    if how == "gone":
        stream.call.cancel()
    await pause()  # for what must not happen
    served.driving.open_door.set()
    await eventually(lambda: len(served.driving.started) == 1, what="it is started")
    assert (await served.sagas.GetSaga(GetSagaRequest(saga_id="s-1"))).saga.state == saga_pb2.Saga.STATE_RUNNING
    assert served.driving.waiting == 0


async def test_a_client_that_is_gone_leaves_nobody_waiting(stream: Stream, served: Served) -> None:
    """What waited for it ends with it."""
    await stream.send(*(start(number, start_request(f"s-{number}"), wait_s=30) for number in range(5)))
    await eventually(lambda: served.driving.waiting == 5, what="all wait")
    stream.call.cancel()
    await eventually(lambda: served.driving.waiting == 0, what="nobody waits")


async def test_frames_that_are_none(stream: Stream, served: Served) -> None:
    """Who sends garbage, or one id twice, loses its stream with a reason; others keep theirs."""
    channel: Any = served.channel  # Any: raw bytes, for which gRPC's stubs have no types
    for data in (
        b"\xff\xff\xff",
        pb.OpenStartsRequest(starts=[pb.Start(start_id=1)]).SerializeToString(),
        pb.OpenStartsRequest(starts=[start(1, start_request("s-1"), wait_s=9)] * 2).SerializeToString(),
    ):
        call = channel.stream_stream("/amends.internal.v1alpha1.StartService/OpenStarts")()
        await call.write(data)
        await call.read()
        refusal = await refused(call.read())
        assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, "INVALID_REQUEST")
    await stream.send(start(1, start_request("s-2")))
    assert answer((await stream.ends(1))[1]).started


async def test_stopping_answers_what_it_has_and_refuses_the_rest(stream: Stream, served: Served) -> None:
    """SIGTERM: what is under way is answered, what comes is refused as a call is, then the stream ends in order."""
    idle = Stream(served.channel)
    await idle.hello()
    served.driving.open_door.clear()
    await stream.send(start(1, start_request("s-1")))
    await served.driving.arrived.wait()
    stopping = asyncio.create_task(served.api.stop(SOON_S))
    late = None
    while late is None or late.reason != "STOPPING":
        late = await refused(served.sagas.GetSaga(GetSagaRequest(saga_id="s-1")))
    assert await idle.call.code() is Code.OK
    await stream.send(start(2, start_request("s-2")))
    assert "STOPPING" in reason((await stream.ends(1))[2])
    served.driving.open_door.set()
    assert answer((await stream.ends(1))[1]).started
    assert await stream.call.read() is grpc.aio.EOF
    assert await stream.call.code() is Code.OK
    await stopping


async def test_no_stream_is_opened_while_it_stops(served: Served) -> None:
    """A stream is refused as a call is."""
    served.driving.open_door.clear()
    await served.register()
    holding = asyncio.ensure_future(served.sagas.StartSaga(start_request()))
    await served.driving.arrived.wait()
    stopping = asyncio.create_task(served.api.stop(SOON_S))
    late = None
    while late is None or late.reason != "STOPPING":
        late = await refused(served.sagas.GetSaga(GetSagaRequest(saga_id="s-1")))
    refusal = await refused(Stream(served.channel).hello())
    assert (refusal.code, refusal.reason, refusal.retry_s) == (Code.UNAVAILABLE, "STOPPING", 1)
    served.driving.open_door.set()
    await holding
    await stopping


class Counting(Telemetry):
    """Remembers which requests were refused."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[tuple[str, str]] = []

    def request_refused(self, method: str, reason: str) -> None:
        """See the port."""
        self.refused.append((method, reason))


class Bounded(NamedTuple):
    """A service of streams with a small capacity."""

    channel: grpc.aio.Channel
    telemetry: Counting


@asynccontextmanager
async def bounded(served: Served, *, capacity: int) -> AsyncGenerator[Bounded]:
    """Serves streams that take so many starts at once, of the same sagas."""
    telemetry = Counting()
    starting = Starting(
        driving=served.driving,
        ledger=served.ledger,
        definitions=KnownDefinitions(ledger=served.ledger, catalog=Catalog(ledger_name="staging")),
        payload_limit_bytes=PAYLOAD_LIMIT_BYTES,
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([StartStreams(starting, Edge(Gate(), telemetry), capacity=capacity).handler()])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Bounded(channel, telemetry)
    finally:
        await server.stop(None)


async def test_a_client_that_does_not_read_is_read_no_further(served: Served) -> None:
    """Answers that nobody reads can't fill the memory: what isn't read waits at the client. Others are served meanwhile
    (L2), and once it reads it gets every answer.
    """
    await served.register()
    count = 400
    async with bounded(served, capacity=8) as at:
        lazy = Stream(at.channel)
        await lazy.hello()

        async def send_all() -> None:
            for number in range(count):
                await lazy.send(start(number, start_request(f"lazy-{number}", payload=LARGE), timeout_ms=60_000))

        sending = asyncio.create_task(send_all())
        await eventually(lambda: len(served.driving.started) > 8, what="the first ones are started")
        async with grpc.aio.insecure_channel(f"127.0.0.1:{served.port}") as channel:
            other = Stream(channel)
            await other.hello()
            for number in range(20):
                await other.send(start(number, start_request(f"other-{number}")))
                assert answer((await other.ends(1))[number]).started
        assert len(served.driving.started) < count // 2
        assert not sending.done()
        ends = await lazy.ends(count)
        await sending
        assert sorted(ends) == list(range(count))


async def test_answers_without_room_are_to_be_asked_for(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that fits into no frame, or for which too much waits to be read, is told as one to ask for: the saga is
    durable, and a call answers it.
    """
    await served.register()
    monkeypatch.setattr(start_stream, "FRAME_BYTES", 10_000)
    async with bounded(served, capacity=8) as at:
        stream = Stream(at.channel)
        await stream.hello()
        await stream.send(start(1, start_request("s-1", payload=LARGE)), start(2, start_request("s-2")))
        ends = await stream.ends(2)
        assert (ends[1].response, ends[1].status) == (b"", b"")
        assert answer(ends[2]).started
        monkeypatch.setattr(start_stream, "UNREAD_BYTES", 0)
        await stream.send(start(3, start_request("s-3")))
        assert (await stream.ends(1))[3] == pb.End(start_id=3)
        stream.call.cancel()
    assert not (await served.sagas.StartSaga(start_request("s-1", payload=LARGE))).started
    assert not (await served.sagas.StartSaga(start_request("s-3"))).started


async def test_a_refusal_counts_as_the_calls(served: Served) -> None:
    """`amends.api.errors` says how many starts fail, whichever way they come."""
    await served.register()
    async with bounded(served, capacity=8) as at:
        stream = Stream(at.channel)
        await stream.hello()
        await stream.send(start(1, start_request("s-1", name="unknown")), start(2, start_request("s-2")))
        await stream.ends(2)
        assert at.telemetry.refused == [("amends.v1.SagaService/StartSaga", "definition_not_found")]
        stream.call.cancel()


async def test_capacity_below_what_a_client_sends(served: Served) -> None:
    """A client that sends more than it was told is read later, not turned away; long waits of its own hold it up."""
    await served.register()
    async with bounded(served, capacity=2) as at:
        stream = Stream(at.channel)
        await stream.hello()
        for number in range(4):
            await stream.send(start(number, start_request(f"s-{number}"), wait_s=30))
        await eventually(lambda: served.driving.waiting == 3, what="one more than told is read")
        assert len(served.driving.started) == 3
        await served.driving.end("s-0")
        await eventually(lambda: served.driving.waiting == 3 and len(served.driving.started) == 4, what="the last one")
        stream.call.cancel()


async def test_a_frame_larger_than_the_capacity(served: Served) -> None:
    """What one frame holds can't fill the memory either: its starts are taken as there is room for them."""
    await served.register()
    async with bounded(served, capacity=2) as at:
        stream = Stream(at.channel)
        await stream.hello()
        await stream.send(*(start(number, start_request(f"s-{number}"), wait_s=30) for number in range(8)))
        await eventually(lambda: served.driving.waiting >= 3, what="the first ones wait")
        await pause()  # for what must not happen
        assert len(served.driving.started) == 3
        for number in range(8):
            await eventually(lambda: len(served.driving.started) > number, what="it is taken")  # noqa: B023  # asked in this round
            await served.driving.end(f"s-{number}")
        assert sorted(await stream.ends(8)) == list(range(8))
        stream.call.cancel()


async def test_a_number_used_again_after_its_cancel(stream: Stream, served: Served) -> None:
    """L2: what is left of a cancelled start doesn't take its number from the next one."""
    await stream.send(start(1, start_request("s-1"), wait_s=30))
    await eventually(lambda: served.driving.waiting == 1, what="it waits")
    await stream.send(start(1, start_request("s-2")), cancelled=[1])
    assert answer((await stream.ends(1))[1]).saga.saga_id == "s-2"
