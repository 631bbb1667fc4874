"""How long a connection may take to be made: by the coordinator, by clients and the command line, by announcements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc.aio
import pytest

from amends import coordinator_calls
from amends.participant import announcing
from amends_coordinator.calls.channels import channel_options
from tests.scenarios.frames import Wire, message, wire_server

if TYPE_CHECKING:
    from collections.abc import Sequence

LATE = Wire(late_s=0.6, body=message(b"here"), trailers=((b"grpc-status", b"0"),))


@pytest.mark.parametrize(
    "options",
    [channel_options(1 << 20), coordinator_calls.CHANNEL_OPTIONS, announcing.CHANNEL_OPTIONS],
    ids=["coordinator", "client", "announcing"],
)
async def test_a_server_that_is_slow_to_shake_hands(options: Sequence[tuple[str, str | int]]) -> None:
    """L1: a server that is far away, or busy, is connected to at the first attempt; nobody calls it down meanwhile."""
    async with wire_server(LATE) as address, grpc.aio.insecure_channel(address, options=options) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/shop.Desk/Sell")
        assert await call(b"", timeout=30) == b"here"
