"""What goes on after its caller is gone: it is waited for, however often that is called off."""

from __future__ import annotations

import asyncio
import threading

import pytest

from amends.participant.threads import HandlerThreads, at_once, until_ended

BOUND_S = 10


async def test_work_is_waited_for_however_often_its_call_is_cancelled() -> None:
    """S4, S5: a call counts as running until its commit, or its thread, has really ended."""
    work: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(until_ended(work))
    for _ in range(3):
        await asyncio.sleep(0)
        waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    work.set_result(None)
    await waiting


async def test_a_thread_is_waited_for_and_its_caller_stays_cancelled() -> None:
    """S5: whoever cancelled the call is told so, once the thread has ended and not before."""
    begun, goes_on, abandoned = threading.Event(), threading.Event(), list[bool]()

    async def course() -> str:
        begun.set()
        assert goes_on.wait(BOUND_S)
        return "done"

    threads = HandlerThreads(1)
    running = asyncio.create_task(threads.run(course(), abandoned=lambda: abandoned.append(True)))
    assert await asyncio.to_thread(begun.wait, BOUND_S)
    for _ in range(2):
        running.cancel()
        await asyncio.sleep(0)
    assert (running.done(), abandoned) == (False, [True])
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    threads.close()
    with pytest.raises(RuntimeError, match="after shutdown"):
        await threads.run(course(), abandoned=lambda: None)


async def test_what_would_have_to_wait_is_no_course_of_a_thread() -> None:
    """L2: a mistake of ours is an error at once, and no thread that hangs."""

    async def waits() -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="where nothing can be waited for"):
        at_once(waits())
