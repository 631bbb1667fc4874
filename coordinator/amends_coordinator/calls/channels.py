"""The channels to participants: one for each address, kept as long as it is used, with gRPC's own retries off."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

import grpc.aio

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_CHANNELS = 1_000

TRAILERS_LIMIT_BYTES = 1 << 20
"""How much a participant may say in an answer's metadata. Above gRPC's own limit of 8 KiB it would drop the answer, by
chance, and a clear no with a long text would be unknown."""

Channel = grpc.aio.Channel


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
        self._channels: OrderedDict[str, Channel] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def ready(self, addresses: Sequence[str]) -> Channel | None:
        """The first ready channel among these addresses, in their order; None if none is ready within the gate."""
        channels = [self._channel(address) for address in addresses]
        for channel in channels:
            if channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
                return channel
        return await self._first_ready(channels) if channels else None

    async def close(self) -> None:
        """Close all channels; calls that are still going on are cancelled."""
        channels = tuple(self._channels.values())
        self._channels.clear()
        await asyncio.gather(*(channel.close() for channel in channels), *self._closing)

    def _channel(self, address: str) -> Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = grpc.aio.insecure_channel(address, options=self._options)
            self._channels[address] = channel
            self._close_oldest()
        else:
            self._channels.move_to_end(address)
        return channel

    def _close_oldest(self) -> None:
        """Participants move; channels to where they were must not pile up."""
        if len(self._channels) > MOST_CHANNELS:
            address, oldest = self._channels.popitem(last=False)
            task = asyncio.create_task(oldest.close(), name=f"close channel to {address}")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _first_ready(self, channels: Sequence[Channel]) -> Channel | None:
        waits = {asyncio.ensure_future(channel.channel_ready()): channel for channel in channels}
        try:
            done, _ = await asyncio.wait(waits, timeout=self._gate_s, return_when=asyncio.FIRST_COMPLETED)
            return next((waits[wait] for wait in done if wait.exception() is None), None)
        finally:
            for wait in waits:
                wait.cancel()
            # Not suppressed: a cancellation that comes here is the call's own, and must end it.
            await asyncio.gather(*waits, return_exceptions=True)
