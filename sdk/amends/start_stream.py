"""One stream of starts to the coordinator: many starts in a message, and their answers in whatever order they come.

No start waits for others: while one frame is being written the next fills up, and a start that finds nothing being
written leaves at once. Whatever becomes of a start is told as a call of `StartSaga` would be told: with the answer, or
with the same `AioRpcError`. What is still unanswered when the stream ends was lost with the connection, as a call is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import grpc
from google.protobuf.message import DecodeError
from google.rpc import status_pb2  # type: ignore[import-untyped]  # it ships no stubs

from amends.internal.v1alpha1 import start_service_pb2 as pb
from amends.v1.saga_service_pb2 import StartSagaResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from amends.internal.v1alpha1.start_service_pb2_grpc import StartServiceStub

    Call: TypeAlias = grpc.aio.StreamStreamCall[pb.OpenStartsRequest, pb.OpenStartsResponse]

FRAME_COUNT = 256
FRAME_BYTES = 1 << 20
"""How many starts a frame carries at most, and how many bytes of them."""
LONGEST_HELLO_S = 10.0
"""How long the coordinator may take to say that it speaks these frames."""
IDLE_S = 10.0
"""A stream on which nothing was started for so long, and nothing waits, is given up."""

DETAILS = "grpc-status-details-bin"
_CODES: Mapping[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}
_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


class Waiting(NamedTuple):
    """A start whose answer isn't there yet."""

    future: asyncio.Future[pb.End]
    deadline_s: float


class Outgoing(NamedTuple):
    """A start that isn't sent yet."""

    start_id: int
    request: bytes
    deadline_s: float
    trace: Mapping[str, str]


class StartStream:
    """A stream from its opening to its end. `ended` is told of the end, and whether it is of use to open another."""

    def __init__(self, stub: StartServiceStub, *, ended: Callable[[bool], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = ended
        self._call: Call = stub.OpenStarts()
        self._ids = count(1)
        self._capacity = 0
        self._waiting: dict[int, Waiting] = {}
        self._outgoing: deque[Outgoing] = deque()
        self._cancelled: list[int] = []
        self._news = asyncio.Event()
        self._last_used_s = self._loop.time()
        self._is_leaving = False
        self._idle: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._task = asyncio.create_task(self._run(), name="stream of starts")

    @property
    def is_open(self) -> bool:
        """Whether the coordinator has said that it speaks these frames, and the stream isn't about to end."""
        return self._capacity > 0

    def takes(self, request: bytes) -> bool:
        """Whether a start may go this way now: neither too many wait for answers, nor, given up or not, to be sent."""
        is_full = max(len(self._waiting), len(self._outgoing)) >= self._capacity
        return not is_full and len(request) <= FRAME_BYTES

    async def start(self, request: bytes, *, timeout_s: float, trace: Mapping[str, str]) -> StartSagaResponse | None:
        """One start that the stream `takes`. None: it is to be asked for by a call; it is durable already.

        Raises:
            grpc.aio.AioRpcError: what the call would have raised.
        """
        start_id, future = next(self._ids), self._loop.create_future()
        self._last_used_s = self._loop.time()
        deadline_s = self._last_used_s + timeout_s
        self._waiting[start_id] = Waiting(future, deadline_s)
        self._outgoing.append(Outgoing(start_id, request, deadline_s, trace))
        self._news.set()
        if self._expiry is None or deadline_s < self._expiry.when():
            self._expire_at(deadline_s)
        try:
            return _answer(await future)
        finally:
            if self._waiting.pop(start_id, None) is not None:
                self._cancelled.append(start_id)
                self._news.set()

    async def close(self) -> None:
        """Ends it; what waits ends with `UsageError`, as calls of a closed channel do."""
        self._fail(lambda: grpc.aio.UsageError("the channel is closed"))
        self._call.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        lost, is_spoken = "the stream of starts ended", True
        code = grpc.StatusCode.UNAVAILABLE
        try:
            is_spoken = await self._greeted()
            if is_spoken:
                await self._exchange()
        except grpc.aio.AioRpcError as error:
            lost, is_spoken = error.details() or lost, error.code() is not grpc.StatusCode.UNIMPLEMENTED
            code = error.code() if error.code() in _LOST else code
        except TimeoutError:
            pass
        finally:
            self._capacity = 0
            if self._expiry is not None:
                self._expiry.cancel()
            self._call.cancel()
            self._fail(lambda: _error(code, lost))
            self._ended(is_spoken)

    async def _greeted(self) -> bool:
        """Whether the coordinator speaks these frames."""
        async with asyncio.timeout(LONGEST_HELLO_S):
            hello = await self._call.read()
        if not isinstance(hello, pb.OpenStartsResponse):
            return True  # it ends before it began, which is no refusal
        self._capacity = hello.capacity if hello.frame_version == pb.FRAME_VERSION_1 else 0
        return self._capacity > 0

    async def _exchange(self) -> None:
        """Sends starts and hears of their ends until the stream ends."""
        writing = asyncio.create_task(self._write(), name="write starts")
        self._leave_if_idle()
        try:
            while isinstance(frame := await self._call.read(), pb.OpenStartsResponse):
                for end in frame.ends:
                    waiting = self._waiting.pop(end.start_id, None)
                    if waiting is not None and not waiting.future.done():
                        waiting.future.set_result(end)
        finally:
            if self._idle is not None:
                self._idle.cancel()
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def _write(self) -> None:
        try:
            while True:
                self._news.clear()
                while self._outgoing or self._cancelled:
                    await self._call.write(self._frame())
                if self._is_leaving:
                    await self._call.done_writing()
                    return
                await self._news.wait()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the stream is over, and whoever reads hears why
        except BaseException:
            self._call.cancel()  # without a writer it is of no use to anybody
            raise

    def _frame(self) -> pb.OpenStartsRequest:
        """What is to be sent now, as much as fits."""
        frame = pb.OpenStartsRequest(cancelled_start_ids=self._cancelled)
        self._cancelled.clear()
        now_s, size = self._loop.time(), 0
        while self._outgoing and len(frame.starts) < FRAME_COUNT:
            start = self._outgoing[0]
            size += len(start.request)
            if size > FRAME_BYTES:
                break
            self._outgoing.popleft()
            if start.start_id in self._waiting:
                frame.starts.add(
                    start_id=start.start_id,
                    request=start.request,
                    timeout_ms=max(1, int((start.deadline_s - now_s) * 1_000)),
                    traceparent=start.trace.get("traceparent", ""),
                    tracestate=start.trace.get("tracestate", ""),
                )
        return frame

    def _leave_if_idle(self) -> None:
        left_s = self._last_used_s + IDLE_S - self._loop.time()
        if self._waiting or left_s > 0:
            self._idle = self._loop.call_later(IDLE_S, self._leave_if_idle)
            return
        self._capacity, self._is_leaving = 0, True
        self._news.set()

    def _fail(self, error: Callable[[], Exception]) -> None:
        """Ends everything that waits, each with an error of its own."""
        waiting, self._waiting = self._waiting, {}
        for future, _ in waiting.values():
            if not future.done():
                future.set_exception(error())

    def _expire_at(self, deadline_s: float) -> None:
        """One timer for all starts, at the earliest deadline: most of them end long before theirs."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self._loop.call_at(deadline_s, self._expire, deadline_s)

    def _expire(self, due_s: float) -> None:
        """Ends the starts whose deadline is over."""
        self._expiry = None
        due_s = max(due_s, self._loop.time())
        for future, deadline_s in self._waiting.values():
            if deadline_s <= due_s and not future.done():
                future.set_exception(_error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"))
        later_s = [deadline_s for _, deadline_s in self._waiting.values() if deadline_s > due_s]
        if later_s:
            self._expire_at(min(later_s))


def _answer(end: pb.End) -> StartSagaResponse | None:
    if end.status:
        status = status_pb2.Status.FromString(end.status)
        raise _error(_CODES.get(status.code, grpc.StatusCode.UNKNOWN), status.message, details=end.status)
    if not end.response:
        return None
    try:
        return StartSagaResponse.FromString(end.response)
    except DecodeError as error:
        raise _error(grpc.StatusCode.INTERNAL, f"the answer doesn't parse: {error}") from error


def _error(code: grpc.StatusCode, message: str, *, details: bytes = b"") -> grpc.aio.AioRpcError:
    """What a call that ends like this raises."""
    trailing = grpc.aio.Metadata((DETAILS, details)) if details else grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, details=message)
