"""`amends.internal.v1alpha1.StartService`: starts of one client in lists, and their answers.

Each start is what a call of `StartSaga` is: checked, counted at the gate, refused and told of by the same table, with
its own deadline and its own cancel. Only the way is another. One client's stream is read no further while it has more
starts under way than it was told, so that it can't fill the memory; what isn't read fills the connection, and the
client waits. Answers that a client doesn't read are kept up to a bound, and beyond it only that they are to be asked
for again.

A stream ends when its client has ended its side and has every answer, when the client is gone, or when the coordinator
stops and nothing is under way any more; starts that come while it stops are refused like calls.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc

from amends.internal.v1alpha1 import start_service_pb2 as pb
from amends.v1.saga_service_pb2 import StartSagaRequest
from amends_coordinator.definitions.errors import Fault
from amends_coordinator.grpc_api.handlers import parsed
from amends_coordinator.grpc_api.trace_context import NO_TRACE, trace_context
from amends_coordinator.grpc_api.validation import InvalidRequestError

if TYPE_CHECKING:
    from amends_coordinator.grpc_api.handlers import Context, Edge
    from amends_coordinator.grpc_api.starting import Starting
    from amends_coordinator.grpc_api.trace_context import TraceContext

SERVICE = pb.DESCRIPTOR.services_by_name["StartService"].full_name
OPEN_STARTS = "OpenStarts"
START_SAGA = "amends.v1.SagaService/StartSaga"
"""How refused starts are counted: as the calls that they stand for."""

CAPACITY = 1_024
"""How many starts of one stream may wait for their answers."""
FRAME_COUNT = 256
FRAME_BYTES = 1 << 20
"""How many answers a frame carries at most, and how many bytes of them."""
UNREAD_BYTES = 16 << 20
"""How many bytes of answers are kept for a client that doesn't read them."""
TURN = 32
"""How many starts of a frame are taken before everybody else has their turn."""


class StartStreams:
    """Serves the streams of all clients.

    Args:
        starting: carries out starts.
        edge: what stands around every request.
        capacity: how many starts of one stream may be under way.
    """

    def __init__(self, starting: Starting, edge: Edge, *, capacity: int = CAPACITY) -> None:
        self._starting = starting
        self._edge = edge
        self._capacity = capacity

    def handler(self) -> grpc.GenericRpcHandler:
        """The service's handler. Its bytes are parsed here, as everywhere."""
        handle: Any = self._open  # Any: the stubs know handlers of the synchronous server only
        opened: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(handle)
        return grpc.method_handlers_generic_handler(SERVICE, {OPEN_STARTS: opened})

    async def _open(self, _: object, context: Context) -> None:
        stream = _Stream(context, self._starting, self._edge, capacity=self._capacity)
        try:
            self._edge.gate.require_open()
            await stream.run()
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # noqa: BLE001  # the edge: whatever it is, the client gets a status with a reason
            await self._edge.refuse(context, error, method=f"{SERVICE}/{OPEN_STARTS}")


class _End(NamedTuple):
    """An answer that isn't sent yet; without a response and a status it is to be asked for by a call."""

    start_id: int
    response: bytes = b""
    status: bytes = b""

    @property
    def size(self) -> int:
        return len(self.response) + len(self.status)


class _Stream:
    """One client's stream."""

    def __init__(self, context: Context, starting: Starting, edge: Edge, *, capacity: int) -> None:
        self._context = context
        self._starting = starting
        self._edge = edge
        self._capacity = capacity
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._ends: deque[_End] = deque()
        self._unread_bytes = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Say which frames these are, then read and write them until the stream ends.

        Raises:
            InvalidRequestError: the client sends what isn't one.
        """
        hello = pb.OpenStartsResponse(frame_version=pb.FRAME_VERSION_1, capacity=self._capacity)
        await self._context.write(hello.SerializeToString())
        reading = asyncio.create_task(self._read(), name="read starts")
        closing = asyncio.create_task(self._edge.gate.closed.wait(), name="wait for the gate")
        for task in (reading, closing):
            task.add_done_callback(lambda _: self._news.set())
        try:
            while self._ends or self._under_way or not (reading.done() or closing.done()):
                if reading.done() and reading.exception() is not None:
                    break
                if self._ends:
                    await self._context.write(self._frame())
                else:
                    self._news.clear()
                    await self._news.wait()
            if reading.done():
                await reading
        finally:
            reading.cancel()
            closing.cancel()
            starts = tuple(self._under_way.values())
            for start in starts:
                start.cancel()
            await asyncio.gather(reading, closing, *starts, return_exceptions=True)

    async def _read(self) -> None:
        while True:
            await self._until_there_is_room()
            data = await self._context.read()
            if data is grpc.aio.EOF:
                return
            frame = parsed(pb.OpenStartsRequest, data)
            for start_id in frame.cancelled_start_ids:
                start = self._under_way.get(start_id)
                if start is not None:
                    start.cancel()
                    self._forget(start_id, start)  # here, for one that hasn't begun to run never does
            for number, message in enumerate(frame.starts, 1):
                await self._until_there_is_room()  # a frame may be larger than a client was told
                self._take(message)
                if number % TURN == 0:
                    await asyncio.sleep(0)

    async def _until_there_is_room(self) -> None:
        while len(self._under_way) + len(self._ends) > self._capacity:
            self._room.clear()
            await self._room.wait()

    def _take(self, message: pb.Start) -> None:
        start_id = message.start_id
        if start_id in self._under_way or message.timeout_ms < 1:
            fault = f"start {start_id} is under way already, or has no time left; send a new id and a timeout"
            raise InvalidRequestError((Fault("starts", fault),))
        # Copied out of the frame, which would be held in memory as a whole for as long as one of its parts is.
        work = self._carry_out(start_id, message.request, message.timeout_ms / 1_000, _trace(message))
        self._under_way[start_id] = self._loop.create_task(work, name="carry out start")

    async def _carry_out(self, start_id: int, data: bytes, timeout_s: float, trace: TraceContext) -> None:
        """One start from its bytes to its answer. Cancelled once nobody waits for it: then there is no answer, and a
        saga that is being begun is begun all the same.
        """
        task = self._under_way[start_id]
        timer = self._loop.call_later(timeout_s, task.cancel)
        try:
            self._edge.gate.enter()
            try:
                response = await self._starting.carry_out(parsed(StartSagaRequest, data), trace)
                self._answer(start_id, response.SerializeToString())
            finally:
                self._edge.gate.leave()
        except Exception as error:  # noqa: BLE001  # the edge, as of every call
            self._refuse(start_id, error)
        finally:
            timer.cancel()
            self._forget(start_id, task)

    def _forget(self, start_id: int, start: asyncio.Task[None]) -> None:
        if self._under_way.get(start_id) is start:  # else it was cancelled, and its number may be another one's by now
            del self._under_way[start_id]
        self._room.set()
        self._news.set()

    def _answer(self, start_id: int, response: bytes) -> None:
        fits = len(response) <= FRAME_BYTES and self._unread_bytes + len(response) <= UNREAD_BYTES
        self._put(_End(start_id, response=response) if fits else _End(start_id))

    def _refuse(self, start_id: int, error: Exception) -> None:
        status = self._edge.refusal(error, method=START_SAGA).SerializeToString()
        self._put(_End(start_id, status=status))

    def _put(self, end: _End) -> None:
        self._ends.append(end)
        self._unread_bytes += end.size
        self._news.set()

    def _frame(self) -> bytes:
        """The answers that are there, as many as fit."""
        frame = pb.OpenStartsResponse()
        size = 0
        while self._ends and len(frame.ends) < FRAME_COUNT and size + self._ends[0].size <= FRAME_BYTES:
            end = self._ends.popleft()
            size += end.size
            frame.ends.add(start_id=end.start_id, response=end.response, status=end.status)
        self._unread_bytes -= size
        self._room.set()
        return frame.SerializeToString()


def _trace(message: pb.Start) -> TraceContext:
    if not message.traceparent:
        return NO_TRACE
    return trace_context((("traceparent", message.traceparent), ("tracestate", message.tracestate)))
