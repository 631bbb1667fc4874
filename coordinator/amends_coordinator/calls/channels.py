"""The channels to participants: one for each address, kept as long as it is used, with gRPC's own retries off."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

import grpc.aio

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    Method: TypeAlias = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]

MOST_CHANNELS = 1_000

TRAILERS_LIMIT_BYTES = 1 << 20
"""How much a participant may say in an answer's metadata. Above gRPC's own limit of 8 KiB it would drop the answer, by
chance, and a clear no with a long text would be unknown."""


class Connection:
    """The channel to one address, and the methods that were called over it."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self._methods: dict[str, Method] = {}

    def method(self, name: str) -> Method:
        """What calls "package.Service/Method". Without serializers, so that bytes go out and come in as they are: what
        was stored is what is sent, and parsing is ours.
        """
        method = self._methods.get(name)
        if method is None:
            method = self._methods[name] = self.channel.unary_unary(f"/{name}")
        return method


def channel_options(payload_limit_bytes: int) -> list[tuple[str, int]]:
    """The coordinator owns the attempts: gRPC makes none of its own, whatever a name server's configuration says."""
    room_for_framing = 64 * 1024
    return [
        ("grpc.enable_retries", 0),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        ("grpc.max_send_message_length", payload_limit_bytes + room_for_framing),
        ("grpc.max_receive_message_length", payload_limit_bytes + room_for_framing),
        ("grpc.max_metadata_size", TRAILERS_LIMIT_BYTES),
        ("grpc.absolute_max_metadata_size", TRAILERS_LIMIT_BYTES),
    ]


class Channels:
    """Channels by address.

    Args:
        payload_limit_bytes: the largest message that is sent or received.
        connect_gate_s: how long a call waits for a ready channel before it counts as not sent, in seconds.
    """

    def __init__(self, *, payload_limit_bytes: int, connect_gate_s: float) -> None:
        self._options = channel_options(payload_limit_bytes)
        self._gate_s = connect_gate_s
        self._connections: OrderedDict[str, Connection] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def ready_now(self, addresses: Sequence[str]) -> Connection | None:
        """The first connection among these addresses, in their order, that is ready; until then all are made to
        connect.
        """
        for address in addresses:
            connection = self._connection(address)
            if connection.channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
                return connection
        return None

    async def ready(self, addresses: Sequence[str]) -> Connection | None:
        """The first connection among these addresses that gets ready within the gate; None if none does."""
        return await self._first_ready([self._connection(address) for address in addresses]) if addresses else None

    async def close(self) -> None:
        """Close all channels; calls that are still going on are cancelled."""
        connections = tuple(self._connections.values())
        self._connections.clear()
        await asyncio.gather(*(connection.channel.close() for connection in connections), *self._closing)

    def _connection(self, address: str) -> Connection:
        connection = self._connections.get(address)
        if connection is None:
            connection = Connection(grpc.aio.insecure_channel(address, options=self._options))
            self._connections[address] = connection
            self._close_oldest()
        else:
            self._connections.move_to_end(address)
        return connection

    def _close_oldest(self) -> None:
        """Participants move; channels to where they were must not pile up."""
        if len(self._connections) > MOST_CHANNELS:
            address, oldest = self._connections.popitem(last=False)
            task = asyncio.create_task(oldest.channel.close(), name=f"close channel to {address}")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _first_ready(self, connections: Sequence[Connection]) -> Connection | None:
        waits = {asyncio.ensure_future(connection.channel.channel_ready()): connection for connection in connections}
        try:
            done, _ = await asyncio.wait(waits, timeout=self._gate_s, return_when=asyncio.FIRST_COMPLETED)
            return next((waits[wait] for wait in done if wait.exception() is None), None)
        finally:
            for wait in waits:
                wait.cancel()
            # Not suppressed: a cancellation that comes here is the call's own, and must end it.
            await asyncio.gather(*waits, return_exceptions=True)
