"""One attempt is one request on the wire, whatever the network makes of it."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from amends_coordinator.calls.unary import UnaryParticipants
from amends_coordinator.core.states import Outcome
from amends_coordinator.system import SystemClock
from tests.scenarios.frames import tcp_server
from tests.unit.calls.servers import compensation
from tests.unit.calls.test_action_target import Directory

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

PREFACE_BYTES = 24
HEADERS, SETTINGS, PING, GOAWAY = 1, 4, 6, 7
ACKNOWLEDGED = 1
NOTHING_WAS_DONE = struct.pack("!II", 0, 0)
"""Of a GOAWAY: the last stream that was looked at is none, and there is no error."""


def frame(kind: int, *, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """An HTTP/2 frame (RFC 9113, section 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


@asynccontextmanager
async def refusing(begun: list[int]) -> AsyncGenerator[str]:
    """Speaks as much HTTP/2 as it takes to say of every stream that it came too late; remembers them."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(PREFACE_BYTES)
        writer.write(frame(SETTINGS))
        while True:
            size, kind, flags, stream = struct.unpack("!3sBBI", await reader.readexactly(9))
            payload = await reader.readexactly(int.from_bytes(size, "big"))
            if kind in (SETTINGS, PING) and not flags & ACKNOWLEDGED:
                writer.write(frame(kind, flags=ACKNOWLEDGED, payload=payload if kind == PING else b""))
            if kind == HEADERS:
                begun.append(stream)
                writer.write(frame(GOAWAY, payload=NOTHING_WAS_DONE))

    async with tcp_server(talk) as address:
        yield address


async def test_a_call_that_came_too_late_is_not_tried_again_by_grpc() -> None:
    """S1: a server that goes away says that it hasn't looked at the call, after which gRPC would repeat it by itself;
    that would be an attempt that no intent announces.
    """
    begun: list[int] = []
    async with refusing(begun) as address:
        participants = UnaryParticipants(
            directory=Directory(("bank",), address),
            clock=SystemClock(),
            ledger_name="test",
            payload_limit_bytes=1 << 20,
            connect_gate_s=10,
        )
        answer = await participants.call(compensation())
        await participants.close()
    assert (answer.outcome, answer.status_code) == (Outcome.UNKNOWN, "UNAVAILABLE")
    assert len(begun) == 1
