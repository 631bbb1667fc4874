"""Counts the requests that are being answered, so that a stopping process ends once the last one is answered."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from amends_coordinator.ports.driving import StoppingError

if TYPE_CHECKING:
    from collections.abc import Generator


class Gate:
    """Every request passes through it. To be used on one event loop."""

    def __init__(self) -> None:
        self._inside = 0
        self._closed = False
        self._empty = asyncio.Event()
        self._empty.set()

    @contextmanager
    def passed(self) -> Generator[None]:
        """Count a request while it is being answered.

        Raises:
            StoppingError: the gate is closed.
        """
        if self._closed:
            raise StoppingError("this coordinator is stopping")
        self._inside += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    async def close(self, *, grace_s: float) -> None:
        """Let nobody in any more, and return once nobody is inside or `grace_s` seconds are over. Safe to repeat."""
        self._closed = True
        try:
            await asyncio.wait_for(self._empty.wait(), grace_s)
        except TimeoutError:
            return
