"""Says of a run that can't go on who waits where."""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING, Any

from amends.errors import AmendsError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

PLACES_TOLD = 4
"""Of each task that waits, so many places are told."""


class StuckError(AmendsError):
    """A run on virtual time can't go on. The text says what everybody waits for: hold what a fault keeps waiting
    (`held`), or mend what never ends.
    """


class WrongLoopError(AmendsError):
    """A rehearsal on an ordinary event loop, or a run inside of one. The text says what to do."""


def who_waits(loop: asyncio.AbstractEventLoop) -> str:
    """A line for each task of a loop, by their names."""
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    return "\n".join(map(_told, tasks))


def _told(task: asyncio.Task[Any]) -> str:
    """A task, and where it waits: the innermost places last."""
    frames = [traceback.extract_stack(frame, limit=1)[0] for frame in _frames(task.get_coro())][-PLACES_TOLD:]
    places = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
    return f"  {task.get_name()}: {'; '.join(places) or 'nowhere'}"


def _frames(waiting: object) -> Iterator[FrameType]:
    """The frames of a coroutine and of what it waits for, as far as Python shows them."""
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is not None:
            yield frame
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
