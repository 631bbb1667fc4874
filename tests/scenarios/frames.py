"""A participant that writes HTTP/2 by hand, so that it can say what no gRPC library would say."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    Talk: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

PREFACE_BYTES = 24
LARGEST_FRAME_BYTES = 16_384
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
END_STREAM, END_HEADERS, ACKNOWLEDGED = 1, 4, 1

Fields = tuple[tuple[bytes, bytes], ...]
OK_HEADERS: Fields = ((b":status", b"200"), (b"content-type", b"application/grpc"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """What is written for each call: headers, the bytes of the body as they are, trailers; then perhaps a reset, or the
    end of the connection. Whoever connects hears nothing for the first `late_s` seconds.
    """

    headers: Fields | None = OK_HEADERS
    body: bytes = b""
    trailers: Fields | None = None
    reset: int | None = None
    hang_up: bool = False
    late_s: float = 0


def message(data: bytes, *, compressed: int = 0, length: int | None = None) -> bytes:
    """A gRPC message with its five bytes in front; `length` lies about its size."""
    return bytes((compressed,)) + (len(data) if length is None else length).to_bytes(4, "big") + data


@asynccontextmanager
async def tcp_server(talk: Talk) -> AsyncGenerator[str]:
    """A server that hands every connection to `talk`; yields its address, and closes what is open at the end."""
    talking: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talking[asyncio.create_task(_talk(talk, reader, writer))] = writer

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in talking:
            task.cancel()
        await asyncio.gather(*talking, return_exceptions=True)
        for writer in talking.values():
            writer.close()  # of one that was cancelled before it began to talk


@asynccontextmanager
async def wire_server(wire: Wire) -> AsyncGenerator[str]:
    """A server that answers every call with `wire`; yields its address."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _converse(reader, writer, wire)

    async with tcp_server(talk) as address:
        yield address


async def say_nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """Accept the connection, and never answer."""
    while await reader.read(1_024):
        pass


async def speak_another_language(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer like a web server that doesn't know HTTP/2."""
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await writer.drain()


async def _talk(talk: Talk, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await talk(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wire: Wire) -> None:
    await reader.readexactly(PREFACE_BYTES)
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), wire.late_s)
    writer.write(_frame(SETTINGS, 0, 0))
    while True:
        head = await reader.readexactly(9)
        payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:9], "big")
        if kind == SETTINGS and not flags & ACKNOWLEDGED:
            writer.write(_frame(SETTINGS, ACKNOWLEDGED, 0))
        elif kind == PING and not flags & ACKNOWLEDGED:
            writer.write(_frame(PING, ACKNOWLEDGED, 0, payload))
        elif kind in (DATA, HEADERS) and flags & END_STREAM:
            writer.write(_answer(wire, stream))
            if wire.hang_up:
                return
        await writer.drain()


def _answer(wire: Wire, stream: int) -> bytes:
    frames = (
        b"" if wire.headers is None else _headers(wire.headers, stream, last=wire.trailers is None and not wire.body)
    )
    for start in range(0, len(wire.body), LARGEST_FRAME_BYTES):
        frames += _frame(DATA, 0, stream, wire.body[start : start + LARGEST_FRAME_BYTES])
    if wire.trailers is not None:
        frames += _headers(wire.trailers, stream, last=True)
    if wire.reset is not None:
        frames += _frame(RESET, 0, stream, wire.reset.to_bytes(4, "big"))
    return frames


def _headers(fields: Fields, stream: int, *, last: bool) -> bytes:
    block = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)
    pieces = [block[start : start + LARGEST_FRAME_BYTES] for start in range(0, len(block), LARGEST_FRAME_BYTES)] or [
        b""
    ]
    frames = b""
    for number, piece in enumerate(pieces):
        flags = (END_STREAM if last and number == 0 else 0) | (END_HEADERS if number == len(pieces) - 1 else 0)
        frames += _frame(CONTINUATION if number else HEADERS, flags, stream, piece)
    return frames


def _text(text: bytes) -> bytes:
    """A string as HPACK writes it: its length with a prefix of seven bits, then the bytes, not compressed."""
    length = len(text)
    if length < 127:
        return bytes((length,)) + text
    rest, coded = length - 127, bytearray((127,))
    while rest >= 128:
        coded.append(rest % 128 + 128)
        rest //= 128
    coded.append(rest)
    return bytes(coded) + text


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload
