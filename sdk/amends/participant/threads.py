"""Runs plain handlers in threads, so that they don't hold up the loop that all other calls share.

A thread can't be stopped. A call whose caller is gone is over for everybody but its thread: it counts as in flight and
its key as in use until the handler has ended by itself, and then nobody hears its answer.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class HandlerThreads:
    """A number of threads; calls beyond it wait for one, in order. Use it on one loop.

    Args:
        count: how many there are at most; each is made when it is first needed.
    """

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="amends-handler")

    async def run(self, course: Coroutine[Any, Any, T], *, abandoned: Callable[[], None]) -> T:
        """What the coroutine returns, run to its end in a thread, in a copy of the context that this was called in.

        Args:
            course: awaits nothing but what is there at once (`at_once`).
            abandoned: called on the loop where the caller of this is cancelled although the coroutine has begun.

        Raises:
            CancelledError: the caller was cancelled; the coroutine has ended by now, or never begun.
        """
        try:
            submitted = self._pool.submit(contextvars.copy_context().run, at_once, course)
        except RuntimeError:  # closed
            course.close()
            raise
        ended = asyncio.wrap_future(submitted)
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            if submitted.cancel():
                course.close()
                raise
            abandoned()
            await until_ended(ended)
            if not ended.cancelled():
                ended.exception()  # read, so that the loop does not report what nobody waited for
            raise

    def close(self) -> None:
        """Take no more, and forget what waits. Threads that still run a handler end with it."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def at_once(course: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that never has to wait, since all it awaits is there at once: no loop is needed then.

    This is how the code that says how a call goes is written once, for handlers on a loop and in threads.
    """
    try:
        course.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        course.close()
    raise RuntimeError("this would have to wait for something, where nothing can be waited for")


async def until_ended(work: asyncio.Future[T]) -> None:
    """Waits for work whose caller is gone already, also where this is cancelled once more."""
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            continue
