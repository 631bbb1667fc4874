"""Starts in lists, as the client makes them: what goes how, within which bounds, and what becomes of each of them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, cast

import grpc
import pytest
from opentelemetry import trace

from amends import ClientClosedError, CoordinatorUnavailableError, SagaClient, SagaIdInUseError, start_stream, starts
from amends.internal.v1alpha1 import start_service_pb2 as pb
from amends.v1 import saga_service_pb2 as api
from amends.v1.saga_service_pb2 import StartSagaRequest
from tests.unit.sdk_initiator.coordinator import Context, Refusal, TellingCoordinator, error_info, serving
from tests.unit.sdk_initiator.listed import ListedStarts, ListingClient
from tests.unit.sdk_initiator.travel import whole_saga
from tests.waiting import eventually, pause
from typed.v1.typed_pb2 import PlanTrip

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

TRIP = whole_saga()
FIRST = "trip-0"


class HoldingCoordinator(TellingCoordinator):
    """Holds the starts of sagas back whose ids begin with "held", until `door` is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.door = asyncio.Event()
        self.held: set[str] = set()

    async def StartSaga(self, request: api.StartSagaRequest, context: Context) -> api.StartSagaResponse:
        """Answers at once, or once the door is open."""
        if request.saga_id.startswith("held"):
            self.held.add(request.saga_id)
            await self.door.wait()
        return await super().StartSaga(request, context)


@pytest.fixture
async def coordinator() -> HoldingCoordinator:
    """A coordinator that isn't served yet."""
    # The methods that it leaves out answer UNIMPLEMENTED, as generated; only the stub calls them abstract.
    return HoldingCoordinator()  # type: ignore[abstract]  # pyright: ignore[reportAbstractUsage]


@asynccontextmanager
async def listing(
    coordinator: TellingCoordinator, listed: ListedStarts, *, call_timeout: timedelta = timedelta(seconds=10)
) -> AsyncGenerator[ListingClient]:
    """A client that sends all starts in lists, and has registered the saga."""
    async with (
        serving(coordinator, listed=listed) as address,
        ListingClient(address, call_timeout=call_timeout) as client,
    ):
        await client.start(TRIP, PlanTrip(), saga_id=FIRST)
        yield cast("ListingClient", client)


async def start_all(client: SagaClient, *saga_ids: str, wanted: PlanTrip | None = None) -> list[str]:
    """Starts them at once; their ids."""
    wanted = PlanTrip() if wanted is None else wanted
    handles = await asyncio.gather(*(client.start(TRIP, wanted, saga_id=saga_id) for saga_id in saga_ids))
    return [handle.saga_id for handle in handles]


def ids_of(frames: list[pb.OpenStartsRequest]) -> list[list[str]]:
    """The sagas' ids, frame by frame."""
    return [[StartSagaRequest.FromString(start.request).saga_id for start in frame.starts] for frame in frames]


async def test_what_is_there_leaves_in_one_frame_and_within_its_bounds(coordinator: HoldingCoordinator) -> None:
    """A frame carries at most 256 starts or 1 MiB; what doesn't fit is in the next one, and a start that fits into none
    is a call.
    """
    listed = ListedStarts(coordinator)
    async with listing(coordinator, listed) as client:
        names = [f"trip-{number}" for number in range(1, 601)]
        assert await start_all(client, *names) == names
        assert [len(frame) for frame in ids_of(listed.frames)] == [1, 256, 256, 88]
        listed.frames.clear()
        await start_all(client, "large-1", "large-2", "large-3", wanted=PlanTrip(destination="x" * 400_000))
        assert ids_of(listed.frames) == [["large-1", "large-2"], ["large-3"]]
        listed.frames.clear()
        await start_all(client, "larger", wanted=PlanTrip(destination="x" * 1_100_000))
    assert listed.frames == []
    assert coordinator.methods().count("StartSaga") == 605


async def test_a_start_that_is_alone_is_a_call(coordinator: HoldingCoordinator) -> None:
    """Lists begin where several starts are under way at once; who starts one saga after the other opens none."""
    listed = ListedStarts(coordinator)
    async with serving(coordinator, listed=listed) as address, SagaClient(address) as client:
        for number in range(3):
            await client.start(TRIP, PlanTrip(), saga_id=f"trip-{number}")
        assert listed.opened == 0
        held = asyncio.create_task(start_all(client, "held-1"))
        await eventually(lambda: "held-1" in coordinator.held, what="one is under way")
        await client.start(TRIP, PlanTrip(), saga_id="trip-3")
        await eventually(lambda: listed.open_now == 1, what="the stream is open")
        assert listed.frames == []
        async with asyncio.timeout(10):
            while not listed.started:
                await client.start(TRIP, PlanTrip(), saga_id="trip-4")
        coordinator.door.set()
        assert await held == ["held-1"]
    assert listed.opened == 1


@pytest.mark.parametrize("kind", ["unknown", "other frames", "narrow channel"])
async def test_a_coordinator_without_our_frames_gets_calls_for_good(
    coordinator: HoldingCoordinator, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older coordinator, a newer one, and a channel that frames don't fit through: starts are calls, and nobody asks
    again.
    """
    monkeypatch.setattr(starts, "REOPEN_PAUSE_S", 0.0)
    version = cast("pb.FrameVersion.ValueType", 2) if kind == "other frames" else pb.FRAME_VERSION_1
    listed = ListedStarts(coordinator, frame_version=version, is_built=kind != "unknown")
    options = [("grpc.max_receive_message_length", 100_000)] if kind == "narrow channel" else []
    async with (
        serving(coordinator, listed=listed) as address,
        SagaClient(address, options=options) as client,
    ):
        for turn in range(20):
            names = [f"trip-{turn}-{number}" for number in range(5)]
            assert await start_all(client, *names) == names
        await eventually(lambda: listed.open_now == 0, what="the client has left")
    assert listed.opened == (0 if kind == "narrow channel" else 1)
    assert listed.frames == []


async def test_one_of_many_has_its_own_deadline_and_its_own_cancel(coordinator: HoldingCoordinator) -> None:
    """Each start keeps its own deadline and is cancelled alone: the coordinator hears that nobody waits for it, and the
    others are answered.
    """
    listed = ListedStarts(coordinator)
    async with listing(coordinator, listed, call_timeout=timedelta(seconds=1)) as client:
        late = asyncio.create_task(start_all(client, "held-1"))
        cancelled = asyncio.create_task(start_all(client, "held-2"))
        await eventually(lambda: len(coordinator.held) == 2, what="both are under way")
        assert await start_all(client, "trip-1", "trip-2") == ["trip-1", "trip-2"]
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        with pytest.raises(CoordinatorUnavailableError, match=r"did not answer in time \[NO_ANSWER\]") as told:
            await late
        assert told.value.status_code is grpc.StatusCode.DEADLINE_EXCEEDED
        numbers = {StartSagaRequest.FromString(start.request).saga_id: start.start_id for start in listed.started}
        await eventually(lambda: len(listed.cancelled) == 2, what="the coordinator heard of it")
        assert set(listed.cancelled) == {numbers["held-1"], numbers["held-2"]}
        coordinator.door.set()
        assert await start_all(client, "trip-3") == ["trip-3"]
        assert listed.opened == 1


async def test_the_nearest_deadline_comes_first_and_then_the_next(coordinator: HoldingCoordinator) -> None:
    """L2: whichever start was made first, each hears at its own deadline that no answer came, and not before."""
    async with listing(coordinator, ListedStarts(coordinator), call_timeout=timedelta(milliseconds=200)) as client:
        wait = timedelta(milliseconds=300)
        later = asyncio.create_task(client.run(TRIP, PlanTrip(), saga_id="held-1", timeout=wait))
        await eventually(lambda: len(coordinator.held) == 1, what="it is under way")
        for name in ("held-2", "held-3"):
            with pytest.raises(CoordinatorUnavailableError, match=f"{name}.*did not answer in time"):
                await start_all(client, name)
            if name == "held-2":
                assert not later.done()
        with pytest.raises(CoordinatorUnavailableError, match=r"held-1.*did not answer in time"):
            await later


async def test_a_start_that_is_cancelled_before_it_left_is_not_sent(
    coordinator: HoldingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it, and nobody has heard of it."""
    monkeypatch.setattr(start_stream, "FRAME_COUNT", 1)
    listed = ListedStarts(coordinator)
    async with listing(coordinator, listed) as client:
        first, second = (
            asyncio.create_task(client.start(TRIP, PlanTrip(), saga_id=f"trip-{number}")) for number in (1, 2)
        )
        asyncio.get_running_loop().call_soon(second.cancel)  # both have begun then, and a frame has room for one
        await asyncio.gather(first, second, return_exceptions=True)
        await start_all(client, "trip-3")
    assert [saga_id for frame in ids_of(listed.frames) for saga_id in frame] == [FIRST, "trip-1", "trip-3"]


async def test_starts_of_a_lost_stream_are_sent_again_with_their_ids(coordinator: HoldingCoordinator) -> None:
    """S9: a coordinator that goes away in the middle of a stream, and comes back: every start is sent again, as a call,
    and each saga is there once.
    """
    names = ["held-1", "held-2", "held-3"]
    lost, later = ListedStarts(coordinator), ListedStarts(coordinator)
    async with serving(coordinator, listed=lost) as address:
        client = await ListingClient(address).__aenter__()
        starting = asyncio.create_task(start_all(client, *names))
        await eventually(lambda: len(lost.started) == 3, what="they are under way")
    coordinator.door.set()
    async with serving(coordinator, port=int(address.rpartition(":")[2]), listed=later):
        assert await starting == names
        assert later.started == []
        await client.close()
    assert sorted(coordinator.sagas) == names


async def test_a_stream_is_opened_again_after_a_loss(
    coordinator: HoldingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss costs the lists of a moment, not those of a client's life."""
    monkeypatch.setattr(starts, "REOPEN_PAUSE_S", 0.0)
    async with serving(coordinator, listed=ListedStarts(coordinator)) as address:
        client = await ListingClient(address).__aenter__()
    again = ListedStarts(coordinator)
    async with serving(coordinator, port=int(address.rpartition(":")[2]), listed=again):
        async with asyncio.timeout(10):
            while not again.started:
                await client.start(TRIP, PlanTrip(), saga_id="trip-1")
        await client.close()


async def test_what_the_stream_has_no_room_for_is_a_call(coordinator: HoldingCoordinator) -> None:
    """The coordinator says how many starts it takes at once, and is never given more; long waits hold up no start."""
    listed = ListedStarts(coordinator, capacity=2)
    async with listing(coordinator, listed) as client:
        held = asyncio.create_task(start_all(client, "held-1", "held-2"))
        await eventually(lambda: len(coordinator.held) == 2, what="the stream is full")
        assert await start_all(client, "trip-1") == ["trip-1"]
        coordinator.door.set()
        await held
        await start_all(client, "trip-2")
    assert [saga_id for frame in ids_of(listed.frames) for saga_id in frame] == [FIRST, "held-1", "held-2", "trip-2"]


class StuckStarts(ListedStarts):
    """Reads the first frame of a stream and no other."""

    async def _read(self, frames: AsyncIterator[pb.OpenStartsRequest], ends: asyncio.Queue[pb.End | None]) -> None:
        first = await anext(frames)
        await self._answer(first.starts[0], ends)
        await asyncio.Event().wait()


async def test_a_stream_that_is_read_no_further_is_given_no_more(coordinator: HoldingCoordinator) -> None:
    """L2: starts that nobody waits for any more and that can't leave don't fill the memory; later ones are calls."""
    async with listing(coordinator, StuckStarts(coordinator, capacity=4), call_timeout=timedelta(seconds=3)) as client:
        large = PlanTrip(destination="x" * 900_000)
        for number in range(12):
            starting = asyncio.create_task(client.start(TRIP, large, saga_id=f"held-{number}"))
            await pause()
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        assert await start_all(client, "trip-1") == ["trip-1"]


async def test_an_answer_without_room_is_asked_for_by_a_call(coordinator: HoldingCoordinator) -> None:
    """The start is durable; the same request answers it."""
    listed = ListedStarts(coordinator)
    async with listing(coordinator, listed) as client:
        listed.ask_by_call = 1
        assert await start_all(client, "trip-1") == ["trip-1"]
    assert len(listed.started) == 2
    assert coordinator.methods().count("StartSaga") == 3


async def test_an_idle_client_holds_no_stream_open(
    coordinator: HoldingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream on which nothing happens ends, and the next starts open another; one that waits for an answer stays."""
    monkeypatch.setattr(start_stream, "IDLE_S", 0.05)
    monkeypatch.setattr(starts, "REOPEN_PAUSE_S", 0.0)
    listed = ListedStarts(coordinator)
    async with listing(coordinator, listed) as client:
        held = asyncio.create_task(start_all(client, "held-1"))
        await eventually(lambda: "held-1" in coordinator.held, what="one waits")
        coordinator.door.set()
        assert await held == ["held-1"]
        await eventually(lambda: listed.open_now == 0, what="the idle stream has ended")
        async with asyncio.timeout(10):
            while listed.opened < 2:
                await client.start(TRIP, PlanTrip(), saga_id="trip-1")


async def test_a_client_that_is_closed_ends_its_starts(coordinator: HoldingCoordinator) -> None:
    """Whoever still waits is told that the client was closed; the coordinator's end of the stream ends, too."""
    listed = ListedStarts(coordinator)
    async with listing(coordinator, listed) as client:
        starting = asyncio.create_task(start_all(client, "held-1"))
        await eventually(lambda: "held-1" in coordinator.held, what="it is under way")
        await client.close()
        with pytest.raises(ClientClosedError, match=r"starting saga 'held-1': the client was closed meanwhile"):
            await starting
        await eventually(lambda: listed.open_now == 0, what="the stream has ended")


async def test_each_start_of_a_list_has_its_own_trace_and_its_own_error(coordinator: HoldingCoordinator) -> None:
    """The trace context is the starter's, not the stream's; a refusal is one start's, with its details."""

    async def traced(number: int) -> None:
        context = trace.SpanContext(trace_id=number, span_id=number, is_remote=False)
        with trace.use_span(trace.NonRecordingSpan(context)):
            await client.start(TRIP, PlanTrip(), saga_id=f"trip-{number}")

    listed = ListedStarts(coordinator)
    async with listing(coordinator, listed) as client:
        coordinator.refusals.append(
            Refusal(grpc.StatusCode.ALREADY_EXISTS, "exists already", details=[error_info("SAGA_ID_IN_USE")])
        )
        told = await asyncio.gather(*(traced(number) for number in (1, 2, 3)), return_exceptions=True)
        assert ids_of(listed.frames)[1:] == [["trip-1", "trip-2", "trip-3"]]
        assert [start.traceparent[3:35] for start in listed.frames[1].starts] == [
            f"{number:032x}" for number in (1, 2, 3)
        ]
    assert told[1:] == [None, None]
    error = told[0]
    assert isinstance(error, SagaIdInUseError)
    assert str(error) == "starting saga 'trip-1': exists already [SAGA_ID_IN_USE]"
    assert (error.reason, error.status_code) == ("SAGA_ID_IN_USE", grpc.StatusCode.ALREADY_EXISTS)
