"""The context that a plain handler (`def`) is given: gRPC's synchronous one, wherever the call came from.

What the handler says through it is noted, and sent once the handler has ended: so a plain handler in a thread of an
asyncio server, and one of a synchronous server, are answered for by the same code.
"""

from __future__ import annotations

import abc
import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias, cast

import grpc

log = logging.getLogger("amends.participant")

Metadata: TypeAlias = Sequence[tuple[str, str | bytes]]

if TYPE_CHECKING:
    AioContext: TypeAlias = grpc.aio.ServicerContext[Any, Any]  # Any: it fits every method


class CallOnTheWire(Protocol):
    """What both of gRPC's contexts tell of a call, from any thread."""

    def invocation_metadata(self) -> Any:  # Any: the stubs of the two kinds disagree on it
        """What the caller sent along."""
        ...

    def time_remaining(self) -> float | None:
        """Seconds until the deadline."""
        ...

    def peer(self) -> str:
        """The caller's address."""
        ...

    def peer_identities(self) -> Iterable[bytes] | None:
        """Who the caller has proven to be."""
        ...

    def peer_identity_key(self) -> str | None:
        """What it was proven with."""
        ...

    def auth_context(self) -> Mapping[str, Any]:  # Any: the stubs of the two kinds disagree on it
        """All that is known of the connection's security."""
        ...

    def set_compression(self, compression: grpc.Compression) -> None:
        """How the answer is compressed."""
        ...

    def disable_next_message_compression(self) -> None:
        """That the answer isn't."""
        ...


class PlainContext(grpc.ServicerContext, abc.ABC):
    """Notes what the handler says, and asks gRPC for the rest."""

    def __init__(self, wire: CallOnTheWire) -> None:
        self._wire = wire
        self._code: grpc.StatusCode | None = None
        self._details = ""
        self._trailers: Metadata = ()

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        """End the call with this code; whatever the handler does afterwards, that is what is sent."""
        if code is grpc.StatusCode.OK:
            log.error("a handler aborted with the code OK, which is sent as UNKNOWN")
            code, details = grpc.StatusCode.UNKNOWN, ""
        self._code, self._details = code, details
        raise grpc.aio.AbortError(details)

    def abort_with_status(self, status: grpc.Status) -> NoReturn:
        """The same with trailers."""
        self.set_trailing_metadata(status.trailing_metadata or ())
        self.abort(status.code, status.details)

    def set_code(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode | None:
        """What was set; None: nothing was."""
        return self._code

    def set_details(self, details: str) -> None:
        self._details = details

    def details(self) -> str:
        """What was set."""
        return self._details

    # The stubs know a mapping only, which gRPC doesn't take.
    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        trailers = tuple(trailing_metadata)
        for pair in trailers:
            match pair:
                case (str(), str() | bytes()):
                    pass
                case _:
                    raise TypeError(f"{pair!r} is no trailer: they are pairs of a text and a text or bytes")
        self._trailers = trailers

    def trailing_metadata(self) -> Any:
        """What was set."""
        return self._trailers

    def invocation_metadata(self) -> Any:
        return self._wire.invocation_metadata()

    def time_remaining(self) -> float:
        # The stubs know no call without a deadline; gRPC answers None or a very long time then.
        return cast("float", self._wire.time_remaining())

    def peer(self) -> str:
        return self._wire.peer()

    def peer_identities(self) -> Iterable[bytes] | None:
        return self._wire.peer_identities()

    def peer_identity_key(self) -> str | None:
        return self._wire.peer_identity_key()

    def auth_context(self) -> Mapping[str, Any]:
        return self._wire.auth_context()

    def set_compression(self, compression: grpc.Compression) -> None:
        self._wire.set_compression(compression)

    def disable_next_message_compression(self) -> None:
        self._wire.disable_next_message_compression()


class ContextInThread(PlainContext):
    """Of a handler in a thread of an asyncio server. Make it on the server's loop.

    Args:
        context: gRPC's own.
    """

    def __init__(self, context: AioContext) -> None:
        super().__init__(context)
        self._aio, self._loop = context, asyncio.get_running_loop()
        self._active = True
        self._callbacks: list[Callable[[], None]] = []

    def is_active(self) -> bool:
        return self._active

    def cancel(self) -> bool:
        """End the call as one that was cancelled."""
        self._code = grpc.StatusCode.CANCELLED
        return self._active

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Have something done, quickly, when the call has ended or the caller is gone. False: it is too late."""
        self._callbacks.append(callback)
        return self._active

    def send_initial_metadata(self, initial_metadata: Any) -> None:
        sending = self._aio.send_initial_metadata(tuple(initial_metadata))
        asyncio.run_coroutine_threadsafe(sending, self._loop).result()

    def end(self) -> None:
        """Nobody waits for the handler any more. Said on the loop, once or more often."""
        self._active = False
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                log.exception("a callback of a call that has ended failed")


class ContextOfSyncServer(PlainContext):
    """Of a handler of a synchronous server.

    Args:
        context: gRPC's own.
    """

    def __init__(self, context: grpc.ServicerContext) -> None:
        super().__init__(context)
        self._sync = context

    def is_active(self) -> bool:
        return self._sync.is_active()

    def cancel(self) -> bool:
        return self._sync.cancel()

    def add_callback(self, callback: Callable[[], None]) -> bool:
        return self._sync.add_callback(callback)

    def send_initial_metadata(self, initial_metadata: Any) -> None:
        self._sync.send_initial_metadata(initial_metadata)
