"""A call that has arrived, as a server hands it over to `step_calls`, and where it is carried out."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from concurrent.futures import Future

    from google.protobuf.message import Message

    from amends.participant.context import StepContext
    from amends.participant.guards import Verdict
    from amends.participant.served_method import ReceivedRequest, ServedMethod

Pairs: TypeAlias = Iterable[tuple[str, str | bytes]]


class HandlerContext(Protocol):
    """What is asked of the context that a handler was given: gRPC's asyncio one, or a `PlainContext`."""

    def time_remaining(self) -> float | None:
        """Seconds until the deadline."""
        ...

    def code(self) -> object:
        """The code that the handler set or aborted with, as gRPC keeps it; nothing, or 0, if it did neither."""
        ...

    def details(self) -> str:
        """The text that belongs to it."""
        ...

    def trailing_metadata(self) -> object:
        """The trailers that the handler set; nothing if it set none."""
        ...


class Place(Protocol):
    """Where a call is carried out: on an event loop, in one of its threads, or in a thread that it came in."""

    @property
    def context(self) -> HandlerContext:
        """What the handler is given beside its request."""
        ...

    async def wait(self, other: Future[None], step: StepContext) -> None:
        """Wait for a call that is in this one's way; see `key_memory.wait_on_loop`."""
        ...

    def run(self, course: Coroutine[Any, Any, Verdict]) -> Awaitable[Verdict]:
        """Run the handler's course to its end."""
        ...


class Call(NamedTuple):
    """A call that has arrived.

    Attributes:
        method: of what.
        metadata: values by key; of repeated keys the last.
        request: the request as it came. A coordinator sends the same bytes with every attempt.
        message: the request as the handler gets it.
        place: where it is carried out, and with which context.
    """

    method: ServedMethod
    metadata: Mapping[str, str | bytes]
    request: ReceivedRequest
    message: Message
    place: Place
