"""Waits for a condition with a bound: the one place where tests may pause, because a condition can only be asked again.

Where the code under test offers an event, a future or a signal, wait for that instead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PAUSE_S = 0.01


async def eventually(condition: Callable[[], bool], *, what: str, bound_s: float = 10.0) -> None:
    """Return once `condition()` is true; fail with `what` was expected when `bound_s` seconds are over."""
    end = time.monotonic() + bound_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"after {bound_s} s still not so: {what}")
        await asyncio.sleep(PAUSE_S)


def eventually_blocking(condition: Callable[[], bool], *, what: str, bound_s: float = 10.0) -> None:
    """The same for tests without a loop, such as those that watch another process."""
    end = time.monotonic() + bound_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"after {bound_s} s still not so: {what}")
        time.sleep(PAUSE_S)


async def pause() -> None:
    """A moment, for a condition that has to be asked with `await`; the caller keeps the bound."""
    await asyncio.sleep(PAUSE_S)
