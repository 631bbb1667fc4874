"""gRPC without a network: a channel whose calls go straight to the handlers of a server in the same process.

Whoever calls and whoever answers can't tell: bytes go in and come out, with metadata, trailers, codes and deadlines as
gRPC has them. A call whose deadline is over, or whose caller is cancelled, is cancelled at its handler, too.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import grpc
import grpc.aio

from amends.testing.in_process_context import InProcessContext, ProcessDied, pairs_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence

    from amends.testing.in_process_context import Pairs

    # Any: one channel carries the messages of all methods.
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]
    Serve: TypeAlias = Callable[[grpc.HandlerCallDetails], Handler | None]
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

T = TypeVar("T")

STREAMED = (
    "a rehearsal carries no calls that stream their requests: no public method of the coordinator does, and none can "
    "be a step; call such a method of your service over gRPC"
)


@dataclass(frozen=True, slots=True)
class CallDetails(grpc.HandlerCallDetails):
    """What a server is told of a call before it chooses a handler."""

    method: str
    invocation_metadata: Pairs


class InProcessServer:
    """Runs the handlers of the calls of all its channels.

    Args:
        name: for the names of tasks.
        serve: chooses the handler of a call, as `grpc.GenericRpcHandler.service` does.
        begin: is waited for before a handler runs.
        interceptors: stand before the handlers, the outermost first.
    """

    def __init__(
        self,
        name: str,
        serve: Serve,
        *,
        begin: Callable[[], Awaitable[None]],
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    ) -> None:
        self._name, self._serve, self._begin, self._interceptors = name, serve, begin, tuple(interceptors)
        self._running: dict[asyncio.Task[Any], None] = {}

    def channel(self) -> InProcessChannel:
        """A channel to it."""
        return InProcessChannel(self)

    async def carry_out(self, method: str, request: bytes, context: InProcessContext) -> bytes:
        """Run the handler of one unary call; what it raises is raised."""
        await self._begin()
        handler = await self._handler(method, context)
        if handler.unary_unary is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this is no unary method")
        asked = request if handler.request_deserializer is None else handler.request_deserializer(request)
        answer = await cast("Awaitable[Any]", cast("Any", handler.unary_unary)(asked, context))
        if context.set_code_name is not None:
            raise grpc.aio.AbortError
        return cast("bytes", answer if handler.response_serializer is None else handler.response_serializer(answer))

    async def stream(self, method: str, request: bytes, context: InProcessContext) -> None:
        """Run the handler of one call that is answered by a stream, which it writes to its context."""
        handler = await self._handler(method, context)
        if handler.unary_stream is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this is no method that streams its answers")
        await cast("Awaitable[None]", cast("Any", handler.unary_stream)(request, context))

    def spawn(self, work: Coroutine[Any, Any, T], method: str) -> asyncio.Task[T]:
        """Run a call in a task of its own, which is kept until it ends."""
        task = asyncio.create_task(work, name=f"{self._name}{method}")
        self._running[task] = None
        task.add_done_callback(self._ended)
        return task

    def cancel_all(self) -> None:
        """Cancel every call."""
        for task in tuple(self._running):
            task.cancel()

    async def end_all(self) -> None:
        """Cancel every call, and wait until each has let go of what it held, such as a transaction."""
        while self._running:
            self.cancel_all()
            await asyncio.wait(tuple(self._running))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.pop(task, None)
        if not task.cancelled():
            task.exception()  # whoever still waits has it; when nobody does it must not be reported as never looked at

    async def _handler(self, method: str, context: InProcessContext) -> Handler:
        handler = await self._chosen(self._interceptors, CallDetails(method, context.metadata))
        if handler is None:
            raise _error(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        return handler

    async def _chosen(
        self, interceptors: Sequence[grpc.aio.ServerInterceptor], details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """The handler that the interceptors agree on."""
        if not interceptors:
            return self._serve(details)
        first, *others = interceptors
        return await first.intercept_service(partial(self._chosen, others), details)


class InProcessChannel(grpc.aio.Channel):
    """A channel to an `InProcessServer`."""

    def __init__(self, server: InProcessServer) -> None:
        self._server = server

    async def __aenter__(self) -> InProcessChannel:
        return self

    async def __aexit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Nothing is open."""

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Always ready."""
        return grpc.ChannelConnectivity.READY

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Nothing ever changes."""
        await asyncio.Event().wait()

    async def channel_ready(self) -> None:
        """It always is."""

    def unary_unary(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, *_: Any, **__: Any
    ) -> Any:
        """See gRPC."""
        return _Unary(self._server, method, request_serializer, response_deserializer)

    def unary_stream(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, *_: Any, **__: Any
    ) -> Any:
        """See gRPC."""
        return _Streaming(self._server, method, request_serializer, response_deserializer)

    def stream_unary(self, *_: Any, **__: Any) -> Any:
        """Requests are never streamed."""
        raise NotImplementedError(STREAMED)

    def stream_stream(self, *_: Any, **__: Any) -> Any:
        """Requests are never streamed."""
        raise NotImplementedError(STREAMED)


@dataclass(frozen=True, slots=True)
class _Method:
    server: InProcessServer
    method: str
    serialize: Callable[[Any], bytes] | None
    deserialize: Callable[[bytes], Any] | None

    def _request(self, request: Any) -> bytes:
        return cast("bytes", request) if self.serialize is None else self.serialize(request)


class _Unary(_Method):
    """Calls one unary method."""

    def __call__(self, request: Any, *, timeout: float | None = None, metadata: Any = None, **_: Any) -> UnaryCall:
        context = _context(timeout, metadata)
        work = self.server.carry_out(self.method, self._request(request), context)
        return UnaryCall(self.server.spawn(work, self.method), context, timeout, self.deserialize)


class _Streaming(_Method):
    """Calls one method that streams its answers."""

    def __call__(self, request: Any, *, timeout: float | None = None, metadata: Any = None, **_: Any) -> StreamCall:
        context = _context(timeout, metadata)
        work = self.server.stream(self.method, self._request(request), context)
        return StreamCall(self.server.spawn(work, self.method), context, self.deserialize)


class UnaryCall:
    """One unary call: to be awaited for its response."""

    def __init__(
        self,
        task: asyncio.Task[bytes],
        context: InProcessContext,
        timeout_s: float | None,
        deserialize: Callable[[bytes], Any] | None,
    ) -> None:
        self._task, self._context, self._timeout_s, self._deserialize = task, context, timeout_s, deserialize

    def __await__(self) -> Generator[Any, None, Any]:
        return self._response().__await__()

    async def trailing_metadata(self) -> Pairs:
        """What the handler sent after its response."""
        return self._context.trailers

    def cancel(self) -> bool:
        """See gRPC."""
        return self._task.cancel()

    async def _response(self) -> Any:
        try:
            await asyncio.wait((self._task,), timeout=self._timeout_s)
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        if not self._task.done():
            self._task.cancel()
            raise _error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
        response = _result(self._task, self._context)
        return response if self._deserialize is None else self._deserialize(response)


class StreamCall:
    """One call that is answered by a stream: to be read until its end."""

    def __init__(
        self, task: asyncio.Task[None], context: InProcessContext, deserialize: Callable[[bytes], Any] | None
    ) -> None:
        self._task, self._context, self._deserialize = task, context, deserialize

    async def read(self) -> Any:
        """The next message, or `grpc.aio.EOF`."""
        reading = asyncio.create_task(self._context.messages.get(), name="read a stream")
        try:
            await asyncio.wait((self._task, reading), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                message = reading.result()
                return message if self._deserialize is None else self._deserialize(cast("bytes", message))
        finally:
            reading.cancel()
        _result(self._task, self._context)
        return grpc.aio.EOF

    def cancel(self) -> bool:
        """See gRPC."""
        return self._task.cancel()


def _context(timeout_s: float | None, metadata: Any) -> InProcessContext:
    deadline_s = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
    return InProcessContext(pairs_of(metadata), deadline_s=deadline_s)


def _result(task: asyncio.Task[T], context: InProcessContext) -> T:
    """What a handler made, or the error that a caller gets of it over a network."""
    try:
        return task.result()
    except grpc.aio.AioRpcError:
        raise
    except grpc.aio.AbortError:
        code = context.set_code_name or grpc.StatusCode.UNKNOWN
        raise _error(code, context.set_details_text, context.trailers) from None
    except asyncio.CancelledError:
        raise _error(grpc.StatusCode.CANCELLED, "the handler was cancelled") from None
    except ProcessDied:
        raise _error(grpc.StatusCode.UNAVAILABLE, "Socket closed") from None
    except BaseException as fault:
        raise _error(grpc.StatusCode.UNKNOWN, f"Unexpected {type(fault)}: {fault}") from fault


def _error(code: grpc.StatusCode, details: str, trailers: Pairs = ()) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailers), details=details)
