"""A network between the coordinator and a participant, which holds requests back, doubles or drops them, loses answers.

It speaks gRPC on both sides and looks into nothing but the metadata. What becomes of a call is a list of fates for each
side ("a/action"): one for each call that comes, the last of which holds for all further ones; where nothing is planned
`chance` decides by method and side, if there is one. It journals what the coordinator sent: the beginning of each call
and how it ended for the coordinator.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, cast

import grpc

from tests.timelines.participant import entry

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from tests.scenarios.journal import Journal

    Method = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]

LATE_CALL_TIMEOUT_S = 30.0


class Fate(Enum):
    """What becomes of a call."""

    PASS = auto()
    """It is handed on, and so is its answer."""
    HELD = auto()
    """It is held back, and the coordinator hears nothing; `deliver` hands it on later."""
    LATE = auto()
    """It is held back, and the coordinator's connection breaks; `deliver` hands it on later."""
    DROPPED = auto()
    """It is gone, and the coordinator's connection breaks."""
    DOUBLED = auto()
    """It is handed on, and so is its answer; `deliver` hands on a second copy later."""
    LOST = auto()
    """It is handed on and carried out, and then the coordinator's connection breaks."""
    UNHEARD = auto()
    """It is handed on and carried out, and the coordinator hears nothing."""


@dataclass(frozen=True, slots=True)
class _Packet:
    method: str
    metadata: tuple[tuple[str, str | bytes], ...]
    request: bytes


@dataclass(slots=True)
class Network:
    """See the module."""

    journal: Journal
    target: str
    fates: dict[str, list[Fate]] = field(default_factory=dict[str, list[Fate]])
    chance: Callable[[str, str], Fate] | None = None
    address: str = ""
    came: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    held: defaultdict[str, list[_Packet]] = field(default_factory=lambda: defaultdict(list))
    targets: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _channel: grpc.aio.Channel | None = None
    _copies: set[asyncio.Task[object]] = field(default_factory=set[asyncio.Task[object]])

    def does(self, side: str, *fates: Fate) -> None:
        """Say what becomes of the calls of one side from now on."""
        self.fates[side] = list(fates)
        self.came[side] = 0

    async def deliver(self, side: str) -> list[grpc.StatusCode]:
        """Hand on what was held back of one side, one after the other; what the participant answered to each."""
        codes: list[grpc.StatusCode] = []
        while self.held[side]:
            codes.append(await self._send_copy(self.held[side].pop(0)))
        return codes

    def open(self) -> None:
        """Connect to the participant."""
        self._channel = grpc.aio.insecure_channel(self.target, options=(("grpc.enable_retries", 0),))

    async def close(self) -> None:
        """End everything that is still on its way."""
        for copy in self._copies:
            copy.cancel()
        await asyncio.gather(*self._copies, return_exceptions=True)
        if self._channel is not None:
            await self._channel.close()

    async def take(self, method: str, request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        """One call of the coordinator. Any: bytes pass through as they are."""
        pairs = tuple((key, value) for key, value in context.invocation_metadata() or () if key != "user-agent")
        metadata = {key: value for key, value in pairs if isinstance(value, str)}
        self.journal.write(entry("begin", metadata, deadline_left_s=context.time_remaining()))
        outcome = "no answer"
        try:
            response = await self._meet_its_fate(_Packet(method, pairs, request), metadata, context)
            outcome = "ok"
        except grpc.aio.AioRpcError as error:
            outcome = error.code().name
            trailers = [(key, value) for key, value in error.trailing_metadata() or () if not key.startswith("grpc-")]
            await context.abort(error.code(), error.details() or "", tuple(trailers))
        finally:
            self.journal.write(entry("end", metadata, outcome=outcome))
        return response

    async def _meet_its_fate(
        self, packet: _Packet, metadata: dict[str, str], context: grpc.aio.ServicerContext[Any, Any]
    ) -> bytes:
        side = f"{metadata['amends-step']}/{metadata['amends-direction']}"
        fate = self._fate(packet.method, side)
        self.targets[side].add(metadata.get("amends-action-target", ""))
        if fate in (Fate.HELD, Fate.LATE, Fate.DOUBLED):
            self.held[side].append(packet)
        if fate in (Fate.LATE, Fate.DROPPED):
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the connection broke")
        if fate is Fate.UNHEARD:
            self._keep(asyncio.create_task(self._send_copy(packet)))
        if fate in (Fate.HELD, Fate.UNHEARD):
            await asyncio.Event().wait()
        answer, trailers = await self._send(packet, context.time_remaining())
        if fate is Fate.LOST:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the connection broke")
        context.set_trailing_metadata(trailers)
        return answer

    def _fate(self, method: str, side: str) -> Fate:
        if side not in self.fates and self.chance is not None:
            return self.chance(method, side)
        fates = self.fates.get(side, [Fate.PASS])
        self.came[side] += 1
        return fates[min(self.came[side], len(fates)) - 1]

    async def _send(
        self, packet: _Packet, timeout_s: float | None
    ) -> tuple[bytes, tuple[tuple[str, str | bytes], ...]]:
        if self._channel is None:
            raise AssertionError("the network is not open")
        method: Method = self._channel.unary_unary(packet.method)  # without serializers bytes go in and come out
        call = method(packet.request, timeout=timeout_s, metadata=packet.metadata)
        response: bytes = await call
        return response, tuple((key, value) for key, value in await call.trailing_metadata())

    async def _send_copy(self, packet: _Packet) -> grpc.StatusCode:
        try:
            await self._send(packet, LATE_CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK

    def _keep(self, copy: asyncio.Task[object]) -> None:
        self._copies.add(copy)
        copy.add_done_callback(self._copies.discard)


class _AllMethods(grpc.GenericRpcHandler):
    def __init__(self, network: Network) -> None:
        self._network = network

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:  # Any: as grpcio's stubs have it
        method: Any = handler_call_details.method
        network = self._network

        async def handle(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
            return await network.take(method, request, context)

        behaviour: Any = handle  # the stubs describe handlers of the synchronous server only
        return cast("Any", grpc.unary_unary_rpc_method_handler(behaviour))


@asynccontextmanager
async def between(journal: Journal, target: str) -> AsyncGenerator[Network]:
    """A network in front of a participant; it listens at its `address`."""
    network = Network(journal, target)
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    server.add_generic_rpc_handlers((_AllMethods(network),))
    network.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    network.open()
    try:
        yield network
    finally:
        await server.stop(0)
        await network.close()
