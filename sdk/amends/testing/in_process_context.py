"""What a handler is given beside its request where no network is between it and its caller."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
import grpc.aio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Pairs: TypeAlias = "tuple[tuple[str, str | bytes], ...]"

PEER = "in-process"


class ProcessDied(BaseException):
    """The process of a handler is gone in the middle of a call. No `Exception`: nothing in it goes on."""


class InProcessContext(grpc.aio.ServicerContext[Any, Any]):
    """What a handler is given beside its request.

    Attributes:
        metadata: the call's.
        trailers: what the handler sets.
        messages: what it writes, where it streams.
    """

    def __init__(self, metadata: Pairs, *, deadline_s: float | None) -> None:
        self.metadata = metadata
        self.trailers: Pairs = ()
        self.messages: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=1)
        self.set_code_name: grpc.StatusCode | None = None
        self.set_details_text = ""
        self._loop = asyncio.get_running_loop()  # a plain handler asks from a thread without one
        self._deadline_s = deadline_s

    async def read(self) -> Any:
        """A unary request has been read already."""
        return grpc.aio.EOF

    async def write(self, message: Any) -> None:
        """Wait until whoever calls has taken what was written before."""
        await self.messages.put(message)

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Nobody looks at it."""

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> Any:
        """End the call with another status than OK."""
        self.set_code_name, self.set_details_text = code, details
        if trailing_metadata:
            self.trailers = pairs_of(trailing_metadata)
        raise grpc.aio.AbortError("Locally aborted.")

    async def abort_with_status(self, status: grpc.Status) -> Any:
        """End the call with a status."""
        await self.abort(status.code, status.details, status.trailing_metadata or ())

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        """See gRPC."""
        self.trailers = pairs_of(trailing_metadata)

    def trailing_metadata(self) -> Any:
        """See gRPC."""
        return self.trailers

    def invocation_metadata(self) -> Any:
        """See gRPC."""
        return self.metadata

    def set_code(self, code: grpc.StatusCode) -> None:
        """See gRPC."""
        self.set_code_name = None if code is grpc.StatusCode.OK else code

    def code(self) -> Any:
        """A number, as gRPC's own context has it; None until one is set."""
        return None if self.set_code_name is None else self.set_code_name.value[0]

    def set_details(self, details: str) -> None:
        """See gRPC."""
        self.set_details_text = details

    def details(self) -> str:
        """See gRPC."""
        return self.set_details_text

    def set_compression(self, compression: grpc.Compression) -> None:
        """Nothing is compressed."""

    def disable_next_message_compression(self) -> None:
        """Nothing is compressed."""

    def peer(self) -> str:
        """See gRPC."""
        return PEER

    def peer_identities(self) -> Iterable[bytes] | None:
        """See gRPC."""
        return None

    def peer_identity_key(self) -> str | None:
        """See gRPC."""
        return None

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """See gRPC."""
        return {}

    def time_remaining(self) -> Any:
        """Seconds until the deadline; None where there is none."""
        if self._deadline_s is None:
            return None
        return max(0.0, self._deadline_s - self._loop.time())

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """See gRPC."""
        task = asyncio.current_task()
        if task is not None:
            task.add_done_callback(lambda _: callback(self))

    def cancelled(self) -> bool:
        """See gRPC."""
        return False

    def done(self) -> bool:
        """See gRPC."""
        return False


def pairs_of(metadata: Any) -> Pairs:
    """Pairs, of whatever a caller or a handler takes for metadata."""
    given: Iterable[tuple[str, str | bytes]] = metadata or ()
    return tuple((key, value) for key, value in given)
