"""Counts the calls that are being carried out, so that a full participant says so and a stopping one waits for them.

gRPC's own `stop()` does not wait for a handler that still cleans up after its call was aborted (grpc/grpc#37239).
"""

from __future__ import annotations

import asyncio


class CallsInFlight:
    """The calls of one server, all on one event loop."""

    def __init__(self) -> None:
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def count(self) -> int:
        """How many there are now."""
        return self._count

    def begin(self) -> None:
        """Counts one call more, until `end`."""
        self._count += 1
        self._idle.clear()

    def end(self) -> None:
        """Counts one call less: to be said for every `begin`, however the call ends."""
        self._count -= 1
        if self._count == 0:
            self._idle.set()

    async def wait_idle(self, timeout_s: float) -> bool:
        """Waits until there is none, at most `timeout_s`; whether that was reached."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True
