"""Publishes to NATS JetStream. Needs the extra: `pip install "amends[nats]"`.

    async with NatsPublisher("nats://localhost:4222") as publisher, Relay(sessions, publisher):
        await server.serve()

An event is a message on the subject that its topic names; a stream that takes this subject must be there. It counts as
published once the stream has acknowledged it, so it is as durable as the stream is: its storage, its replicas.

`Nats-Msg-Id` is the event's id, by which the stream throws repeated ones away within its `duplicate_window` (two
minutes, unless it was made with another). A consumer that must not see one twice, ever, looks at the id itself.
"""

# nats-py gives its **options no types, which makes every function that takes them partly unknown.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import asyncio
import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

if find_spec("nats") is None:
    raise ModuleNotFoundError(
        "amends.outbox.nats needs nats-py, which plain amends does not bring: pip install 'amends[nats]'", name="nats"
    )

import nats
from nats import errors
from nats.aio.client import Client
from nats.js import errors as stream_errors
from nats.js.api import Header

from amends.outbox.errors import PublishError, PublisherUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from nats.js.api import PubAck

    from amends.outbox.event import Event

    Connect: TypeAlias = Callable[[], Awaitable[Client]]
    Publishing: TypeAlias = Coroutine[Any, Any, PubAck]  # Any: what a coroutine and its loop say to each other

log = logging.getLogger("amends.outbox")

CONNECT_TIMEOUT_S = 2
ACKNOWLEDGE_TIMEOUT_S = 30.0
"""A message that isn't acknowledged by then isn't any more; the relay's `publish_timeout` is there long before."""

LOOK_S = 0.25
"""How often it is looked whether the connection is still there while an acknowledgement is awaited."""

LOST = "NATS: the connection was lost, and is not back yet"


class NatsPublisher:
    """A publisher for `Relay`. It connects when it is first used, and again whenever it has lost its server for good.

    Args:
        connect: the server's URL or several; or what connects, for everything else that a connection can be told, such
            as credentials or TLS: `lambda: nats.connect(url, user_credentials=path)`.
        stream: the stream that must take every event; another one that takes its subject is refused then. None: any.
    """

    def __init__(self, connect: str | Sequence[str] | Connect, *, stream: str | None = None) -> None:
        self._connect = connect if callable(connect) else _connecting_to(connect)
        self._stream = stream
        self._client: Client | None = None
        self._connecting = asyncio.Lock()

    async def publish(self, event: Event) -> None:
        """See `Publisher`."""
        client = await self._connected()
        headers = headers_of(event)
        if self._stream is not None:
            headers[Header.EXPECTED_STREAM] = self._stream
        _check_size(event, headers, client.max_payload)
        publishing = client.jetstream().publish(
            event.topic, event.payload, timeout=ACKNOWLEDGE_TIMEOUT_S, headers=headers
        )
        try:
            await _while_connected(client, publishing)
        except stream_errors.NoStreamResponseError:
            raise PublishError(
                f"no stream takes the subject {event.topic!r}: make one that does (nats stream add), or publish to a "
                "topic that one takes"
            ) from None
        except (errors.ConnectionClosedError, errors.OutboundBufferLimitError, OSError) as problem:
            raise PublisherUnavailableError(LOST) from problem
        except errors.Error as problem:
            raise PublishError(f"NATS: {problem}") from problem

    async def close(self) -> None:
        """Let go of the connection; what was acknowledged stays."""
        client, self._client = self._client, None
        if client is not None and not client.is_closed:
            await client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _connected(self) -> Client:
        """The connection, which is made anew where it is none any more.

        Raises:
            PublisherUnavailableError: there is no server.
        """
        async with self._connecting:
            client = self._client
            if client is None or client.is_closed:
                try:
                    self._client = client = await self._connect()
                except (errors.Error, OSError) as problem:
                    raise PublisherUnavailableError(f"no NATS server can be reached: {problem}") from problem
        if not client.is_connected:
            # It connects again by itself. What is sent meanwhile would be kept for later, and sent after its time.
            raise PublisherUnavailableError(LOST)
        return client


async def _while_connected(client: Client, publishing: Publishing) -> None:
    """Wait for an acknowledgement, but not on a connection that is gone: the client itself would not notice.

    It may say that the stream had the message before: it came again, and was thrown away.

    Raises:
        PublisherUnavailableError: the connection was lost meanwhile.
        Exception: the client's.
    """
    task = asyncio.create_task(publishing, name="amends-outbox-nats")
    try:
        while not task.done():
            await asyncio.wait([task], timeout=LOOK_S)
            if not (task.done() or client.is_connected):
                raise PublisherUnavailableError(LOST)
    finally:
        task.cancel()
    if task.cancelled():
        raise PublisherUnavailableError(LOST)
    task.result()


def headers_of(event: Event) -> dict[str, str]:
    """What is sent with an event: its own headers, and what it is."""
    headers = dict(event.headers) | {
        Header.MSG_ID: event.event_id,
        "content-type": event.content_type,
        "amends-key": event.key,
    }
    if event.type_name:
        headers["amends-type"] = event.type_name
    if event.saga_id is not None and event.step is not None:
        headers |= {"amends-saga-id": event.saga_id, "amends-step": event.step}
    return headers


def _check_size(event: Event, headers: Mapping[str, str], limit: int) -> None:
    """See that the server takes as much: it counts the headers, the client does not, and for one event that is too
    large the server drops the connection, which would look as if it were away for all of them.

    Raises:
        PublishError: it doesn't.
    """
    framing, framing_each = len("NATS/1.0\r\n\r\n"), len(": \r\n")
    size = len(event.payload) + framing
    size += sum(len(name.encode()) + len(text.encode()) + framing_each for name, text in headers.items())
    if size > limit:
        raise PublishError(
            f"the event has {size:,} bytes with its headers, more than the server takes (max_payload, {limit:,})"
        )


def _connecting_to(servers: str | Sequence[str]) -> Connect:
    """What connects to one of these, or says at once that none answers.

    A connection that is lost stays lost, and the publisher makes another: the client's own way back would keep what is
    sent meanwhile, and send it after its time.
    """
    addresses = [servers] if isinstance(servers, str) else list(servers)

    async def connect() -> Client:
        return await nats.connect(
            addresses,
            error_cb=_note,
            connect_timeout=CONNECT_TIMEOUT_S,
            allow_reconnect=False,
            max_reconnect_attempts=1,  # of the first connection; 0 would be without end
            reconnect_time_wait=0,
        )

    return connect


async def _note(problem: Exception) -> None:
    log.debug("NATS: %s", problem)
