"""Brokers as the tests of publishers use them: what arrived can be read, and they can go away and come back."""

# nats-py gives its **options no types, which makes every function that takes them partly unknown.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import nats
from nats.js.api import DiscardPolicy, StreamConfig

from amends.outbox import MemoryPublisher, PublisherUnavailableError
from amends.outbox.nats import NatsPublisher
from tests.nats import NatsServer

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from amends.outbox import Publisher


class Broker(Protocol):
    """A broker and its publisher."""

    @property
    def publisher(self) -> Publisher:
        """What is tested."""
        ...

    async def arrived(self) -> list[tuple[str, bytes]]:
        """Topics and payloads of everything that is kept, in order."""
        ...

    async def go_away(self) -> None:
        """Be out of reach, and forget nothing."""
        ...

    async def come_back(self) -> None:
        """Be there again."""
        ...

    async def close(self) -> None:
        """End it."""
        ...


class MemoryBroker:
    """The one in memory."""

    def __init__(self) -> None:
        self.publisher = MemoryPublisher()

    async def arrived(self) -> list[tuple[str, bytes]]:
        """See `Broker`."""
        return [(event.topic, event.payload) for event in self.publisher.events]

    async def go_away(self) -> None:
        """See `Broker`."""
        self.publisher.faults["*"] = PublisherUnavailableError("it went away")

    async def come_back(self) -> None:
        """See `Broker`."""
        self.publisher.faults.clear()

    async def close(self) -> None:
        """See `Broker`."""


class NatsBroker:
    """A NATS server, with a stream that takes the subjects below `orders`, and one below `full` that is full."""

    def __init__(self, server: NatsServer) -> None:
        self.server = server
        self.publisher = NatsPublisher(server.url)

    async def prepare(self) -> None:
        """Make the streams."""
        client = await nats.connect(self.server.url)
        streams = client.jetstream()
        await streams.add_stream(StreamConfig(name="orders", subjects=["orders.>"]))
        full = StreamConfig(name="full", subjects=["full.>"], max_msgs=0, max_bytes=1, discard=DiscardPolicy.NEW)
        await streams.add_stream(full)
        await client.close()

    async def messages(self) -> list[Msg]:
        """Everything that the stream keeps."""
        client = await nats.connect(self.server.url)
        streams = client.jetstream()
        found: list[Msg] = []
        count = (await streams.stream_info("orders")).state.messages
        if count:
            subscription = await streams.pull_subscribe("orders.>", stream="orders")
            while len(found) < count:
                found += await subscription.fetch(count - len(found), timeout=5)
        await client.close()
        return found

    async def arrived(self) -> list[tuple[str, bytes]]:
        """See `Broker`."""
        return [(message.subject, message.data) for message in await self.messages()]

    async def go_away(self) -> None:
        """See `Broker`."""
        self.server.kill()

    async def come_back(self) -> None:
        """See `Broker`."""
        self.server.start()

    async def close(self) -> None:
        """See `Broker`."""
        await self.publisher.close()
        self.server.kill()
