"""Counts the requests that are being answered, so that a stopping process ends once the last one is answered."""

from __future__ import annotations

import asyncio

from amends_coordinator.ports.driving import StoppingError


class Gate:
    """Every request passes through it. To be used on one event loop.

    Attributes:
        closed: set once nobody is let in any more.
    """

    def __init__(self) -> None:
        self._inside = 0
        self.closed = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def enter(self) -> None:
        """Count a request until it `leave`s.

        Raises:
            StoppingError: the gate is closed.
        """
        self.require_open()
        self._inside += 1
        self._empty.clear()

    def require_open(self) -> None:
        """Let a request in that isn't counted.

        Raises:
            StoppingError: the gate is closed.
        """
        if self.closed.is_set():
            raise StoppingError("this coordinator is stopping")

    def leave(self) -> None:
        """A request is answered: to be said for every `enter`, however it ended."""
        self._inside -= 1
        if not self._inside:
            self._empty.set()

    async def close(self, *, grace_s: float) -> None:
        """Let nobody in any more, and return once nobody is inside or `grace_s` seconds are over. Safe to repeat."""
        self.closed.set()
        try:
            await asyncio.wait_for(self._empty.wait(), grace_s)
        except TimeoutError:
            return
