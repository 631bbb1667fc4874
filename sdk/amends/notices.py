"""Tells in the log why nothing comes while somebody waits: no coordinator answers, or a saga can't get on.

A program that only waits looks the same whether its saga takes long or a service isn't running. What is told is told
once for as long as it stays the same, and for one saga of a client at a time, so that an outage floods no log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager

from amends.errors import AmendsError, CoordinatorUnavailableError
from amends.v1 import saga_pb2

log = logging.getLogger("amends.client")

FIRST_LOOK_S = 3.0
"""For how long a wait is left alone."""
NEXT_LOOK_S = 30.0
"""How often a client looks at last, whatever it waits for. Until then the pauses double while it finds nothing to tell:
at the first look a service that hangs has not yet failed to answer.
"""

Look = Callable[[str], Awaitable[saga_pb2.Saga]]


class Notices:
    """The notices of one client, on one event loop.

    Args:
        look: answers a saga with its rows.
    """

    def __init__(self, look: Look) -> None:
        self._look = look
        self._silent = False
        self._waits: dict[_Wait, None] = {}
        self._quiet_until_s = 0.0
        self._pause_s = FIRST_LOOK_S
        self._told = ""
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None

    def heard(self) -> None:
        """The coordinator answered."""
        self._silent = False

    def unheard(self, error: CoordinatorUnavailableError) -> None:
        """It did not, and is asked again."""
        if not self._silent:
            self._silent = True
            log.warning("%s; trying again", error.message)

    def about(self, saga_id: str) -> AbstractContextManager[object]:
        """Tell why the saga can't get on if the block takes long."""
        loop = asyncio.get_running_loop()
        if self._timer is None:  # one for all waits: most of them end long before
            self._timer = loop.call_later(FIRST_LOOK_S, self._tick)
        return _Wait(self._waits, saga_id, loop.time())

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()

    def _tick(self) -> None:
        self._timer = None
        if not self._waits:
            self._pause_s = FIRST_LOOK_S
            return
        self._timer = asyncio.get_running_loop().call_later(FIRST_LOOK_S, self._tick)
        wait = next(iter(self._waits))
        now_s = asyncio.get_running_loop().time()
        if self._silent or now_s < max(self._quiet_until_s, wait.began_s + FIRST_LOOK_S):
            return
        self._waits[wait] = self._waits.pop(wait)  # the next look is at another one
        self._quiet_until_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, NEXT_LOOK_S)
        self._looking = asyncio.create_task(self._tell(wait.saga_id), name=f"look at saga {wait.saga_id}")

    async def _tell(self, saga_id: str) -> None:
        try:
            why = trouble(await self._look(saga_id))
        except AmendsError:
            return  # whoever waits is told in a better way
        if why:
            self._quiet_until_s = asyncio.get_running_loop().time() + NEXT_LOOK_S
        if why and why != self._told:
            self._told = why
            log.warning("%s", why)


class _Wait:
    """One wait, noted for as long as its block is entered."""

    # No generator: every saga that is run waits, and nearly none for so long that something is told.
    __slots__ = ("_waits", "began_s", "saga_id")

    def __init__(self, waits: dict[_Wait, None], saga_id: str, began_s: float) -> None:
        self._waits, self.saga_id, self.began_s = waits, saga_id, began_s

    def __enter__(self) -> None:
        self._waits[self] = None

    def __exit__(self, *_: object) -> None:
        del self._waits[self]


def trouble(saga: saga_pb2.Saga) -> str:
    """Why a saga can't get on, in a sentence; "" if nothing holds it up but time."""
    for intent in saga.intents:
        if intent.state == saga_pb2.Intent.STATE_PENDING and intent.last_error:
            said = f"{intent.last_error} (attempt {intent.attempt_count})"
            look = f"it is tried again; `amends saga get {saga.saga_id}` shows how it stands"
            return f"saga {saga.saga_id!r} can't get past step {intent.step!r} yet: {said}; {look}"
    return ""
