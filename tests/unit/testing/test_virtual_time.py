"""Virtual time: it stands still while something really goes on, and jumps when nothing does."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import aiosqlite
import pytest

from amends.testing import StuckError, VirtualLoop, WrongLoopError, held, run


def now_s() -> float:
    """The time of the running loop."""
    return asyncio.get_running_loop().time()


def test_time_jumps_where_only_timers_are_left() -> None:
    """A day passes at once, and every timer has its own moment, exactly."""
    seen: list[float] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(3_600)
            seen.append(now_s())

    async def main() -> float:
        ticking = asyncio.create_task(tick())
        await asyncio.sleep(86_400.25)
        ticking.cancel()
        return now_s()

    began_s = time.monotonic()
    assert run(main) == 86_400.25
    assert seen == [3_600.0 * hour for hour in range(1, 25)]
    assert time.monotonic() - began_s < 5


def test_time_stands_still_while_a_thread_works() -> None:
    """Nothing times out because a machine is slow."""
    go = threading.Event()

    async def main() -> float:
        working = asyncio.create_task(asyncio.to_thread(go.wait, 10))
        timer = asyncio.create_task(asyncio.sleep(0.000_001))
        await asyncio.to_thread(lambda: None)
        before_s = now_s()
        go.set()
        await working
        assert not timer.done()
        await timer
        return before_s

    assert run(main) == 0


def test_time_stands_still_while_a_database_works() -> None:
    """A driver with a thread of its own is work outside the loop, whoever waits for it."""

    async def main() -> float:
        async with aiosqlite.connect(":memory:") as database, asyncio.timeout(0.001):
            for number in range(50):
                await database.execute(f"create table t{number} (x)")
        return now_s()

    assert run(main) == 0


def test_time_stands_still_while_a_socket_is_waited_for() -> None:
    """The same of what comes over a network, and of a driver that watches its socket itself."""

    async def main() -> float:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)

        def send(data: bytes) -> None:
            time.sleep(0.01)  # slow, as networks are
            theirs.send(data)

        with ThreadPoolExecutor(1) as threads, ours, theirs:
            threads.submit(send, b"a")
            async with asyncio.timeout(0.001):
                assert await loop.sock_recv(ours, 1) == b"a"
            readable = asyncio.Event()
            loop.add_reader(ours, readable.set)
            threads.submit(send, b"b")
            async with asyncio.timeout(0.001):
                await readable.wait()
            loop.remove_reader(ours)
            writable = asyncio.Event()
            loop.add_writer(ours, writable.set)
            async with asyncio.timeout(0.001):
                await writable.wait()
            loop.remove_writer(ours)
        return now_s()

    assert run(main) == 0


def test_time_moves_while_something_is_held() -> None:
    """What a fault keeps waiting keeps nobody else waiting."""
    go = threading.Event()

    async def hold() -> None:
        with held():
            await asyncio.to_thread(go.wait, 10)

    async def main() -> float:
        holding = asyncio.create_task(hold())
        await asyncio.sleep(60)
        go.set()
        await holding
        return now_s()

    assert run(main) == 60


def test_turns_come_one_after_the_other_when_nothing_goes_on() -> None:
    """Whoever asks for a turn gets it before time moves, and only once what the one before does outside has ended."""
    told: list[str] = []

    async def take(name: str) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await loop.turn()
        told.append(f"{name} begins")
        await asyncio.to_thread(time.sleep, 0.01)
        told.append(f"{name} ends")

    async def main() -> float:
        await asyncio.gather(take("a"), take("b"))
        return now_s()

    assert run(main) == 0
    assert told == ["a begins", "a ends", "b begins", "b ends"]


def test_what_never_ends_is_told_with_its_place() -> None:
    """A run is bounded in real time: a handler that never ends says where it stands."""

    async def never_ends() -> None:
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        await asyncio.create_task(never_ends(), name="the handler")

    with pytest.raises(
        StuckError, match=r"(?s)0\.05 real seconds.*the handler: .*test_virtual_time\.py:\d+ in never_ends"
    ):
        run(main, patience_s=0.05)


def test_a_thread_that_never_ends_is_told_once() -> None:
    """What is cleaned up afterwards can't end either, and hides nothing of what was told first."""
    go = threading.Event()

    async def main() -> None:
        await asyncio.create_task(asyncio.to_thread(go.wait), name="the thread")

    try:
        with pytest.raises(StuckError, match=r"0\.05 real seconds(?s:.*)the thread: "):
            run(main, patience_s=0.05)
    finally:
        go.set()


def test_what_spins_is_told() -> None:
    """The same of a loop that never lets time move."""

    async def main() -> None:
        while True:  # noqa: ASYNC110 - the planted fault
            await asyncio.sleep(0)

    with pytest.raises(StuckError, match="stood still"):
        run(main, patience_s=0.05)


def test_what_waits_for_nothing_is_told() -> None:
    """Nobody will ever set this event, and no timer is left."""

    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(StuckError, match="nothing will ever happen any more"):
        run(main)


def test_what_waits_for_ever_is_told() -> None:
    """Virtual time is bounded, too: a day of heartbeats would not end by itself."""

    async def main() -> None:
        while True:  # noqa: ASYNC110 - the same
            await asyncio.sleep(3_600)

    with pytest.raises(StuckError, match=r"more than 1 day, 0:00:00 of virtual time"):
        run(main, longest=timedelta(days=1))


def test_a_run_is_the_same_each_time() -> None:
    """Chance comes from the seed, and the caller's own is left as it was."""

    async def main() -> float:
        return random.random()

    random.seed(3)
    expected = random.random()
    random.seed(3)
    assert run(main, seed=1) == run(main, seed=1) != run(main, seed=2)
    assert random.random() == expected


async def test_a_run_needs_a_loop_of_its_own() -> None:
    """An `async def` test runs on a loop already, and is told what to do instead."""

    async def main() -> None:
        """Never runs."""

    with pytest.raises(WrongLoopError, match="write the test as a plain function"):
        run(main)
