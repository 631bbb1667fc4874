"""Starts in lists for the coordinator of a few lines, each answered by its own `StartSaga`; and clients that list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, cast

import grpc

from amends import SagaClient
from amends.internal.v1alpha1 import start_service_pb2 as pb
from amends.internal.v1alpha1.start_service_pb2_grpc import StartServiceServicer
from amends.v1.saga_service_pb2 import StartSagaRequest
from tests.unit.sdk_initiator.coordinator import TellingCoordinator
from tests.waiting import eventually


class ListingClient(SagaClient):
    """Sends every start in a list, from the first one on."""

    async def __aenter__(self) -> SagaClient:
        await super().__aenter__()
        self.starts.least_under_way = 0
        self.starts.open()
        await eventually(lambda: self.starts.is_listing, what="the stream is open")
        return self

    @property
    def starts(self) -> Any:  # private to the SDK, and all of it is looked at here
        """Its starts."""
        return self._connection().starts


class CallingClient(SagaClient):
    """Makes a call of every start."""

    async def __aenter__(self) -> SagaClient:
        await super().__aenter__()
        self._connection().starts.least_under_way = 1_000_000
        return self


class ListedContext:
    """What a servicer sees of a call that was a start in a list."""

    def __init__(self, start: pb.Start) -> None:
        self._start = start

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """The trace context, which is all that a start has."""
        pairs = (("traceparent", self._start.traceparent), ("tracestate", self._start.tracestate))
        return tuple(pair for pair in pairs if pair[1])

    def time_remaining(self) -> float:
        """What the client has sent."""
        return self._start.timeout_ms / 1_000

    async def abort_with_status(self, status: grpc.Status) -> None:
        """Ends the start with this error."""
        raise StartRefusedError(dict(cast("Any", status.trailing_metadata))["grpc-status-details-bin"])


class StartRefusedError(Exception):
    """What a start ends with instead of an answer."""

    def __init__(self, status: bytes) -> None:
        super().__init__("refused")
        self.status = status


class ListedStarts(StartServiceServicer):
    """Serves streams of starts.

    Attributes:
        frames: what clients sent.
        opened: how many streams were opened.
        open_now: how many of them are open.
        ask_by_call: how many answers are left out next.
    """

    def __init__(
        self,
        coordinator: TellingCoordinator,
        *,
        frame_version: pb.FrameVersion.ValueType = pb.FRAME_VERSION_1,
        capacity: int = 1_024,
        is_built: bool = True,
    ) -> None:
        """`is_built` False: it answers like a server that has no such method."""
        self._coordinator = coordinator
        self._hello = pb.OpenStartsResponse(frame_version=frame_version, capacity=capacity)
        self._is_built = is_built
        self.frames: list[pb.OpenStartsRequest] = []
        self.opened = self.open_now = self.ask_by_call = 0

    @property
    def cancelled(self) -> list[int]:
        """The starts that clients have given up."""
        return [start_id for frame in self.frames for start_id in frame.cancelled_start_ids]

    @property
    def started(self) -> list[pb.Start]:
        """The starts that came in lists."""
        return [start for frame in self.frames for start in frame.starts]

    # `Any`: the context's types are of no use to it.
    async def OpenStarts(
        self, request_iterator: AsyncIterator[pb.OpenStartsRequest], context: Any
    ) -> AsyncGenerator[pb.OpenStartsResponse]:
        """Answers each start once its own `StartSaga` has."""
        self.opened += 1
        if not self._is_built:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        self.open_now += 1
        ends: asyncio.Queue[pb.End | None] = asyncio.Queue()
        reading = asyncio.create_task(self._read(request_iterator, ends))
        try:
            yield self._hello
            while (end := await ends.get()) is not None:
                yield pb.OpenStartsResponse(ends=[end])
        finally:
            self.open_now -= 1
            reading.cancel()

    async def _read(self, frames: AsyncIterator[pb.OpenStartsRequest], ends: asyncio.Queue[pb.End | None]) -> None:
        async with asyncio.TaskGroup() as answering:
            async for frame in frames:
                self.frames.append(frame)
                for start in frame.starts:
                    answering.create_task(self._answer(start, ends))
        ends.put_nowait(None)

    async def _answer(self, start: pb.Start, ends: asyncio.Queue[pb.End | None]) -> None:
        request, context = StartSagaRequest.FromString(start.request), cast("Any", ListedContext(start))
        end = pb.End(start_id=start.start_id)
        try:
            end.response = (await self._coordinator.StartSaga(request, context)).SerializeToString()
        except StartRefusedError as refused:
            end.status = refused.status
        if self.ask_by_call:
            self.ask_by_call -= 1
            end.ClearField("response")
        ends.put_nowait(end)
