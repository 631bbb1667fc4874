"""Counts the calls that are being carried out, so that a full participant says so and a stopping one waits for them.

gRPC's own `stop()` does not wait for a handler that still cleans up after its call was aborted (grpc/grpc#37239), and
knows nothing of threads that go on after their callers are gone.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future


class CallsInFlight:
    """The calls of one server, on an event loop or in threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._waiting: list[Future[None]] = []

    @property
    def count(self) -> int:
        """How many there are now."""
        return self._count

    def begin(self) -> None:
        """Counts one call more, until `end`."""
        with self._lock:
            self._count += 1

    def end(self) -> None:
        """Counts one call less: to be said for every `begin`, however the call ends."""
        with self._lock:
            self._count -= 1
            if self._count > 0:
                return
            waiting, self._waiting = self._waiting, []
        for idle in waiting:
            if idle.set_running_or_notify_cancel():
                idle.set_result(None)

    async def wait_idle(self, timeout_s: float) -> bool:
        """Waits until there is none, at most `timeout_s`; whether that was reached."""
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.wrap_future(self._idle())
        except TimeoutError:
            return False
        return True

    def wait_idle_in_thread(self, timeout_s: float) -> bool:
        """The same for a thread that may wait."""
        try:
            self._idle().result(timeout_s)
        except TimeoutError:
            return False
        return True

    def _idle(self) -> Future[None]:
        """Done when there is none."""
        idle: Future[None] = Future()
        with self._lock:
            if self._count > 0:
                self._waiting.append(idle)
                return idle
        idle.set_result(None)
        return idle
