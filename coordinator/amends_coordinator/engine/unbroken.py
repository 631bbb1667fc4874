"""Lets what was begun for a client go to its end although the client goes away: what is written must be acted on, and
told.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class Unbroken:
    """Runs work in tasks of its own, which a cancellation of those who wait for it doesn't reach."""

    def __init__(self) -> None:
        self._going_on: set[asyncio.Task[object]] = set()

    async def run(self, work: Coroutine[object, object, T]) -> T:
        """What the work answers or raises."""
        task = asyncio.create_task(work)
        self._going_on.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._going_on.discard(task)
        if not task.cancelled():
            task.exception()  # whoever still waits has it; when nobody does it must not be reported as never looked at
