"""One unary call over a channel, bytes in and bytes out, made by the task that waits for its answer.

`grpc.aio` makes a task for every call, and whoever awaits the call waits for that task: two more turns of the loop and
a fifth of what a call costs its client. Beneath it is a coroutine that any task can await by itself. That is no public
interface, so it is used with the releases only that it was tried with; with any other one a call is made as everybody
makes it. Both ways mean the same, and the tests go both.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc.aio

from amends_coordinator.calls.metadata import Pairs

if TYPE_CHECKING:
    Method: TypeAlias = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]

Ended: TypeAlias = tuple[bytes | None, Iterable[tuple[str, str | bytes]]]
"""The response (None, whatever the stubs say, if a broken server said OK and sent no message) and the trailers."""

Caller: TypeAlias = Callable[[bytes, float, Sequence[tuple[str, str]]], Awaitable[Ended]]
"""Makes a call with a request, a timeout in seconds and metadata. Raises `AioRpcError`, and `CancelledError` where its
task is cancelled or the channel is closed."""

TRIED = ("1.71.", "1.74.", "1.75.", "1.76.", "1.78.", "1.80.", "1.82.", "1.85.")
"""How the releases of gRPC begin whose inner calls are used: tests/unit/calls was run with each of them."""

CANCELLED = "Locally cancelled by application!"  # gRPC's own words for it
CODES = {code.value[0]: code for code in grpc.StatusCode}


class Calls:
    """Calls over one channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        # Any: neither has a type. A release with another inside is taken for one that wasn't tried.
        self._inner: Any = getattr(channel, "_channel", None) if grpc.__version__.startswith(TRIED) else None
        self._under_way: set[Any] = set()

    def caller(self, method: str) -> Caller:
        """What calls "/package.Service/Method"."""
        if self._inner is None:
            return outer(self._channel.unary_unary(method))
        begin, name = self._inner.call, method.encode()

        async def call_by_itself(request: bytes, timeout_s: float, metadata: Sequence[tuple[str, str]]) -> Ended:
            call = begin(name, time.time() + timeout_s, None, None)
            self._under_way.add(call)
            try:
                response: bytes | None = await call.unary_unary(request, tuple(metadata), None)
                status = await call.status()
            finally:
                self._under_way.discard(call)
                if not call.done():
                    call.cancel(CANCELLED)
            if not call.is_ok():
                raise _error(call, status)
            trailers: tuple[tuple[str, str | bytes], ...] = status.trailing_metadata()
            return response, trailers

        return call_by_itself

    def cancel(self) -> None:
        """Cancel all calls that are under way."""
        for call in tuple(self._under_way):
            call.cancel(CANCELLED)


def outer(method: Method) -> Caller:
    """What calls a method as everybody calls it."""

    async def call_by_task(request: bytes, timeout_s: float, metadata: Sequence[tuple[str, str]]) -> Ended:
        call = method(request, timeout=timeout_s, metadata=Pairs(metadata))
        try:
            response: bytes | None = await call
        except KeyError as error:  # gRPC looks the code up in a table of its own
            raise _odd_code(error.args[0]) from error
        return response, await call.trailing_metadata()

    return call_by_task


def _error(call: Any, status: Any) -> BaseException:  # Any: gRPC's inner call and its status have no type
    if call.is_locally_cancelled():
        return asyncio.CancelledError()
    code = CODES.get(status.code())
    if code is None:
        return _odd_code(status.code())
    trailers = grpc.aio.Metadata(*status.trailing_metadata() or ())
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailers, details=status.details(), debug_error_string="")


def _odd_code(code: object) -> grpc.aio.AioRpcError:
    """What gRPC wants such a code to be taken for. Trailers beside it prove nothing either."""
    nothing, said = grpc.aio.Metadata(), f"the participant answered with code {code}, which gRPC does not know"
    return grpc.aio.AioRpcError(grpc.StatusCode.UNKNOWN, nothing, nothing, details=said, debug_error_string="")
