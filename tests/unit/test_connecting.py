"""Connections of the coordinator, of clients and the command line, and of announcements: how long they may take to be
made, and when one that is dead is given up.
"""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import grpc.aio
import pytest

from amends import coordinator_calls
from amends.participant import announcing
from amends_coordinator.calls.channels import channel_options
from tests.scenarios.frames import Wire, message, wire_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LATE = Wire(late_s=0.6, body=message(b"here"), trailers=((b"grpc-status", b"0"),))


EVERY_CHANNEL = pytest.mark.parametrize(
    "options",
    [channel_options(1 << 20), coordinator_calls.CHANNEL_OPTIONS, announcing.CHANNEL_OPTIONS],
    ids=["coordinator", "client", "announcing"],
)


@EVERY_CHANNEL
async def test_a_server_that_is_slow_to_shake_hands(options: Sequence[tuple[str, str | int]]) -> None:
    """L1: a server that is far away, or busy, is connected to at the first attempt; nobody calls it down meanwhile."""
    async with wire_server(LATE) as address, grpc.aio.insecure_channel(address, options=options) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/shop.Desk/Sell")
        assert await call(b"", timeout=30) == b"here"


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux how long it waits for what is not acknowledged")
@EVERY_CHANNEL
async def test_a_connection_that_nobody_acknowledges_is_given_up(options: Sequence[tuple[str, str | int]]) -> None:
    """L1: a machine that vanished, or a NAT that forgot a connection, ends it without a word. By itself Linux would go
    on sending for a quarter of an hour, and all calls meanwhile would be lost on it.
    """
    async with wire_server(LATE) as address, grpc.aio.insecure_channel(address, options=options) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/shop.Desk/Sell")
        await call(b"", timeout=30)
        bounds_ms = {line.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) for line in lines_to(address)}
        assert bounds_ms == {10_000}


def lines_to(address: str) -> Iterator[socket.socket]:
    """The sockets of this process that are connected to an address; each is good until the next one is asked for."""
    host, _, port = address.rpartition(":")
    for number in Path("/proc/self/fd").iterdir():
        with suppress(OSError), socket.socket(fileno=os.dup(int(number.name))) as line:
            if line.getpeername()[:2] in {(host, int(port)), (f"::ffff:{host}", int(port))}:
                yield line
