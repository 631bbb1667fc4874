"""The channels to participants: one for each address, kept as long as it is used, with gRPC's own retries off.

A static participant has one for each way in which it is reached, and a new one when its certificates change; calls
under way end on the old one.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

import grpc.aio

from amends_coordinator.calls.secrets import SecretError, Secrets
from amends_coordinator.calls.static_channels import Material, material, open_channel
from amends_coordinator.calls.unary_call import Calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amends_coordinator.calls.unary_call import Caller
    from amends_coordinator.ports.connections import StaticConnection
    from amends_coordinator.ports.ledger import InstanceRow

MOST_CHANNELS = 1_000

TRAILERS_LIMIT_BYTES = 1 << 20
"""How much a participant may say in an answer's metadata. Above gRPC's own limit of 8 KiB it would drop the answer, by
chance, and a clear no with a long text would be unknown."""


class Connection:
    """The channel to one address, and the methods that were called over it.

    Attributes:
        channel: the channel.
        metadata: what a static participant wants with every call; it may hold a token, so it is never shown.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.metadata: tuple[tuple[str, str], ...] = ()
        self._calls = Calls(channel)
        self._callers: dict[str, Caller] = {}

    def caller(self, method: str) -> Caller:
        """What calls "package.Service/Method". Without serializers, so that bytes go out and come in as they are: what
        was stored is what is sent, and parsing is ours.
        """
        caller = self._callers.get(method)
        if caller is None:
            caller = self._callers[method] = self._calls.caller(f"/{method}")
        return caller

    async def close(self) -> None:
        """Close the channel; calls that are still going on are cancelled."""
        self._calls.cancel()
        await self.channel.close()


def channel_options(payload_limit_bytes: int) -> list[tuple[str, str | int]]:
    """The coordinator owns the attempts: gRPC makes none of its own, whatever a name server's configuration says."""
    room_for_framing = 64 * 1024
    return [
        ("grpc.enable_retries", 0),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        # Not what its name says: so long may an attempt to connect take, with TLS and a server that is far away.
        ("grpc.min_reconnect_backoff_ms", 5_000),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # A connection that a machine or a NAT took with it in silence is given up once nothing was acknowledged for
        # ten seconds. The kernel sees to that (TCP_USER_TIMEOUT); gRPC's pings, which not every server permits so
        # often, are as good as off.
        ("grpc.keepalive_time_ms", 3_600_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.max_send_message_length", payload_limit_bytes + room_for_framing),
        ("grpc.max_receive_message_length", payload_limit_bytes + room_for_framing),
        ("grpc.max_metadata_size", TRAILERS_LIMIT_BYTES),
        ("grpc.absolute_max_metadata_size", TRAILERS_LIMIT_BYTES),
    ]


class Channels:
    """Channels to instances.

    Args:
        payload_limit_bytes: the largest message that is sent or received.
        connect_gate_s: how long a call waits for a ready channel before it counts as not sent, in seconds.
        secrets: what static participants may need.
    """

    def __init__(self, *, payload_limit_bytes: int, connect_gate_s: float, secrets: Secrets) -> None:
        self._options = channel_options(payload_limit_bytes)
        self._gate_s = connect_gate_s
        self._secrets = secrets
        self._connections: OrderedDict[str | tuple[StaticConnection, tuple[bytes, ...]], Connection] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def ready_now(self, instances: Sequence[InstanceRow]) -> Connection | None:
        """The first connection to one of these instances, in their order, that is ready; until then all are made to
        connect.
        """
        return next((ready for instance in instances if (ready := self.ready_to(instance)) is not None), None)

    def ready_to(self, instance: InstanceRow) -> Connection | None:
        """The connection to an instance if it is ready; until then it is made to connect."""
        connection = self._connection(instance)
        if connection is None:
            return None
        is_ready = connection.channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY
        return connection if is_ready else None

    async def ready(self, instances: Sequence[InstanceRow]) -> Connection | None:
        """The first connection to one of these instances that gets ready within the gate; None if none does."""
        connections = [found for instance in instances if (found := self._connection(instance)) is not None]
        return await self._first_ready(connections) if connections else None

    def secret_fault(self, instances: Sequence[InstanceRow]) -> str:
        """Why the first of these instances that lacks a secret can't be reached; "" if none does."""
        for instance in instances:
            if instance.connection is not None:
                try:
                    self._to_static(instance.connection)
                except SecretError as error:
                    return f"participant {instance.participant} can't be reached: {error}"
        return ""

    async def close(self) -> None:
        """Close all channels; calls that are still going on are cancelled."""
        connections = tuple(self._connections.values())
        self._connections.clear()
        await asyncio.gather(*(connection.close() for connection in connections), *self._closing)

    def _connection(self, instance: InstanceRow) -> Connection | None:
        """The connection to an instance; None if it can't be had without a secret that isn't there."""
        if instance.connection is not None:
            try:
                return self._to_static(instance.connection)
            except SecretError:
                return None
        connection = self._connections.get(instance.address)
        if connection is None:
            connection = Connection(grpc.aio.insecure_channel(instance.address, options=self._options))
            self._connections[instance.address] = connection
            self._close_oldest()
        else:
            self._connections.move_to_end(instance.address)
        return connection

    def _to_static(self, how: StaticConnection) -> Connection:
        """Raises `SecretError`."""
        found: Material = material(how, self._secrets)
        key = (how, found.files)
        connection = self._connections.get(key)
        if connection is None:
            connection = Connection(open_channel(how, found, self._secrets, self._options))
            self._connections[key] = connection
            self._close_oldest()
        else:
            self._connections.move_to_end(key)
        connection.metadata = found.metadata
        return connection

    def _close_oldest(self) -> None:
        """Participants move; channels to where they were must not pile up."""
        if len(self._connections) > MOST_CHANNELS:
            _, oldest = self._connections.popitem(last=False)
            task = asyncio.create_task(oldest.close(), name="close the channel that was used least recently")
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
