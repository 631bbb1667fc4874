"""Backends that are no good: each yields the endpoint at which nothing is taken."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

Backend: TypeAlias = Callable[[], AbstractAsyncContextManager[str]]


@asynccontextmanager
async def hangs() -> AsyncGenerator[str]:
    """Takes connections and says nothing, ever."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"http://127.0.0.1:{silent.getsockname()[1]}"


class Closing(asyncio.Protocol):
    """Ends a connection as soon as it is there."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See the class."""
        transport.close()


@asynccontextmanager
async def refuses() -> AsyncGenerator[str]:
    """Closes every connection at once."""
    closing = await asyncio.get_running_loop().create_server(Closing, "127.0.0.1", 0)
    async with closing:
        yield f"http://127.0.0.1:{closing.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def absent() -> AsyncGenerator[str]:
    """Nobody listens there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"
