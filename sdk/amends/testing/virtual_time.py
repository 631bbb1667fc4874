"""Runs an async function on an event loop whose time is virtual: it stands still while anything really goes on, and
jumps to the next timer when nothing does.

Something really goes on while a task waits for what comes from outside the loop: a thread, a socket, a database driver.
The loop sees that by the futures that are made: those of asyncio's own locks, queues, tasks and sleeps, and those of
amends itself, are settled by other tasks, so they don't count; every other one is settled by something outside, and
until it is done the loop waits for real. What a fault holds on purpose (`held`) doesn't count either.

Where nothing really goes on there are turns: whoever asked for one (`turn`) gets it before time moves, one after the
other in the order in which they asked. Handlers begin in turns, so that threads of two of them never race, and a run is
the same each time.

A run that can't go on ends with `StuckError`, which says where everything stands.
"""

from __future__ import annotations

import asyncio
import math
import random
import selectors
import sys
import time
from collections import deque
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack
from weakref import ref

from amends.testing.stuck import StuckError, WrongLoopError, who_waits

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from _typeshed import FileDescriptorLike

T = TypeVar("T")
Given = TypeVarTuple("Given")

PATIENCE_S = 30.0
"""For how long, in real seconds, time may stand still before a run counts as stuck."""

LONGEST = timedelta(days=2)
"""How much virtual time a run may take."""

SETTLED_BY_TASKS = frozenset(
    {
        "asyncio.locks",
        "asyncio.queues",
        "asyncio.runners",
        "asyncio.taskgroups",
        "asyncio.tasks",
        "asyncio.timeouts",
    }
)
"""The modules of asyncio whose futures other tasks of the loop settle."""

OURS = ("amends.", "amends_coordinator.")

MICROS = 1_000_000

CLEAN_UP_S = 1.0
"""How long what is cleaned up after a run that was stuck may take, in real seconds."""

_held: ContextVar[bool] = ContextVar("amends_held", default=False)


@contextmanager
def held() -> Generator[None]:
    """What the block waits for doesn't keep time from moving, although it comes from outside the loop."""
    token = _held.set(True)
    try:
        yield
    finally:
        _held.reset(token)


def run(
    main: Callable[[], Coroutine[Any, Any, T]],
    *,
    seed: int = 0,
    patience_s: float = PATIENCE_S,
    longest: timedelta = LONGEST,
) -> T:
    """Run an async function, on an event loop of its own whose time is virtual, and answer what it returns.

        def test_order() -> None:
            run(rehearse_order, seed=7)

    To be called where no event loop runs: from a plain test, not from an `async def` one. The same seed makes the same
    run; Python's own `random` is seeded, too, and put back afterwards.

    Args:
        main: the function, without arguments.
        seed: chooses ids and the random part of delays.
        patience_s: for how long, in real seconds, time may stand still while something really goes on.
        longest: how much virtual time may pass.

    Raises:
        StuckError: it can't go on, or took longer than that.
        WrongLoopError: an event loop runs here already.
    """
    with suppress(RuntimeError):  # there is none, as it should be
        running = asyncio.get_running_loop()
        raise WrongLoopError(
            f"amends.testing.run() needs an event loop of its own, and {running!r} runs here already: write the test "
            "as a plain function that calls run(...)"
        )
    state = random.getstate()
    random.seed(seed)
    runner = asyncio.Runner(loop_factory=lambda: VirtualLoop(seed=seed, patience_s=patience_s, longest=longest))
    try:
        return runner.run(main())
    finally:
        with suppress(StuckError):  # what was stuck before is told already
            runner.close()
        random.setstate(state)


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop of one run.

    Attributes:
        seed: of the run.
    """

    def __init__(self, *, seed: int = 0, patience_s: float = PATIENCE_S, longest: timedelta = LONGEST) -> None:
        self.seed = seed
        self._patience_s = patience_s
        self._longest_us = longest // timedelta(microseconds=1)
        self._now_us = 0
        self._moved_at_s = time.monotonic()
        self._outside: deque[ref[asyncio.Future[Any]]] = deque()
        self._held_outside: deque[ref[asyncio.Future[Any]]] = deque()
        self._watched: set[tuple[str, FileDescriptorLike]] = set()  # ("r" or "w", the socket)
        self._turns: deque[asyncio.Future[None]] = deque()
        super().__init__(_Selector(self))
        self._clock_resolution = 1 / MICROS  # as fine as time is counted here

    def time(self) -> float:
        """Seconds since the run began, virtual ones."""
        return self._now_us / MICROS

    def create_future(self) -> asyncio.Future[Any]:
        """A future; one that something outside the loop settles is kept in mind until it is done."""
        future = super().create_future()
        module = _caller()
        if module not in SETTLED_BY_TASKS and not module.startswith(OURS):
            (self._held_outside if _held.get() else self._outside).append(ref(future))
        return future

    def add_reader(self, fd: FileDescriptorLike, callback: Callable[[Unpack[Given]], Any], *args: *Given) -> None:
        """Drivers that watch their socket themselves do so only while they wait for it; gRPC does all the time."""
        super().add_reader(fd, callback, *args)
        self._watch("r", fd, callback)

    def remove_reader(self, fd: FileDescriptorLike) -> bool:
        """See `add_reader`."""
        self._watched.discard(("r", fd))
        return super().remove_reader(fd)

    def add_writer(self, fd: FileDescriptorLike, callback: Callable[[Unpack[Given]], Any], *args: *Given) -> None:
        """See `add_reader`."""
        super().add_writer(fd, callback, *args)
        self._watch("w", fd, callback)

    def remove_writer(self, fd: FileDescriptorLike) -> bool:
        """See `add_reader`."""
        self._watched.discard(("w", fd))
        return super().remove_writer(fd)

    def _watch(self, side: str, fd: FileDescriptorLike, callback: object) -> None:
        if not _held.get() and not str(getattr(callback, "__module__", "")).startswith("grpc"):
            self._watched.add((side, fd))

    async def turn(self) -> None:
        """Wait until nothing really goes on and everybody who asked before has had their turn."""
        turn: asyncio.Future[None] = self.create_future()
        self._turns.append(turn)
        await turn

    def begin_next(self) -> bool:
        """Give the next one their turn; whether there was one."""
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(None)
                return True
        return False

    @property
    def is_waiting_outside(self) -> bool:
        """Whether something really goes on."""
        return _any_left(self._outside) or bool(self._watched)

    @property
    def is_holding(self) -> bool:
        """Whether something really goes on that is held."""
        return _any_left(self._held_outside)

    def real_s_left(self) -> float:
        """For how much longer, in real seconds, time may stand still.

        Raises:
            StuckError: for none.
        """
        left_s = self._moved_at_s + self._patience_s - time.monotonic()
        if left_s <= 0:
            self._moved_at_s = time.monotonic()
            self._patience_s = min(self._patience_s, CLEAN_UP_S)
            raise StuckError(
                f"time has stood still at {self.time():.6f} s for {self._patience_s:g} real seconds, because something "
                "goes on that does not end: a handler that a fault keeps waiting has to do so under `held()`, and one "
                f"that waits for something else never gets it.\n{who_waits(self)}"
            )
        return left_s

    def jump(self, delay_s: float | None) -> None:
        """Move time by a delay; None: no timer is set.

        Raises:
            StuckError: nothing will ever happen, or too much time has passed.
        """
        if delay_s is None:
            raise StuckError(f"nothing will ever happen any more, since all tasks wait for others.\n{who_waits(self)}")
        self._now_us += max(1, math.ceil(delay_s * MICROS - 1e-3))
        self._moved_at_s = time.monotonic()
        if self._now_us > self._longest_us:
            too_long, self._longest_us = timedelta(microseconds=self._longest_us), sys.maxsize
            raise StuckError(
                f"more than {too_long} of virtual time have passed: what is waited for "
                f"does not come; if it takes so long, call run(..., longest=...).\n{who_waits(self)}"
            )


class _Selector(selectors.DefaultSelector):
    """Waits for real only while something really goes on."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """See `selectors.BaseSelector`; a timeout in virtual seconds."""
        if timeout is not None and timeout <= 0:
            self._loop.real_s_left()
            # What comes from outside is looked for when there is something to come, and before time moves.
            return super().select(0) if self._loop.is_waiting_outside else []
        events = super().select(0)
        if events:
            return events
        if self._loop.is_waiting_outside:
            return super().select(self._loop.real_s_left())
        if self._loop.begin_next():
            return events
        if timeout is None and self._loop.is_holding:
            return super().select(self._loop.real_s_left())
        self._loop.jump(timeout)
        return events


def _any_left(futures: deque[ref[asyncio.Future[Any]]]) -> bool:
    """Whether one of them isn't done; those that are done in front of it are forgotten."""
    while futures:
        future = futures[0]()
        if future is not None and not future.done():
            return True
        futures.popleft()
    return False


def _caller() -> str:
    """The module that called what asks."""
    # The only way to a caller that costs next to nothing; asyncio and logging do the same.
    return str(sys._getframe(2).f_globals.get("__name__", ""))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
