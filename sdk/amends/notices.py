"""Tells in the log why nothing comes while somebody waits: no coordinator answers, or a saga can't get on.

A program that only waits looks the same whether its saga takes long or a service isn't running. What is told is told
once for as long as it stays the same, and for one saga of a client at a time, so that an outage floods no log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

from amends.errors import AmendsError, CoordinatorUnavailableError
from amends.v1 import saga_pb2

log = logging.getLogger("amends.client")

FIRST_LOOK_S = 3.0
"""For how long a wait is left alone."""
NEXT_LOOK_S = 30.0
"""How often a client looks after that, whatever it waits for."""

Look = Callable[[str], Awaitable[saga_pb2.Saga]]


class Notices:
    """The notices of one client, on one event loop.

    Args:
        look: answers a saga with its rows.
    """

    def __init__(self, look: Look) -> None:
        self._look = look
        self._silent = False
        self._waits: dict[object, tuple[str, float]] = {}
        self._quiet_until_s = 0.0
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

    @contextmanager
    def about(self, saga_id: str) -> Generator[None]:
        """Tell why the saga can't get on if the block takes long."""
        wait = object()
        self._waits[wait] = (saga_id, asyncio.get_running_loop().time())
        if self._timer is None:  # one for all waits: most of them end long before
            self._timer = asyncio.get_running_loop().call_later(FIRST_LOOK_S, self._tick)
        try:
            yield
        finally:
            del self._waits[wait]

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()

    def _tick(self) -> None:
        self._timer = None
        if not self._waits:
            return
        self._timer = asyncio.get_running_loop().call_later(FIRST_LOOK_S, self._tick)
        wait, (saga_id, began_s) = next(iter(self._waits.items()))
        now_s = asyncio.get_running_loop().time()
        if self._silent or now_s < max(self._quiet_until_s, began_s + FIRST_LOOK_S):
            return
        self._waits[wait] = self._waits.pop(wait)  # the next look is at another one
        self._quiet_until_s = now_s + NEXT_LOOK_S
        self._looking = asyncio.create_task(self._tell(saga_id), name=f"look at saga {saga_id}")

    async def _tell(self, saga_id: str) -> None:
        try:
            why = trouble(await self._look(saga_id))
        except AmendsError:
            return  # whoever waits is told in a better way
        if why and why != self._told:
            self._told = why
            log.warning("%s", why)


def trouble(saga: saga_pb2.Saga) -> str:
    """Why a saga can't get on, in a sentence; "" if nothing holds it up but time."""
    for intent in saga.intents:
        if intent.state == saga_pb2.Intent.STATE_PENDING and intent.last_error:
            said = f"{intent.last_error} (attempt {intent.attempt_count})"
            look = f"it is tried again; `amends saga get {saga.saga_id}` shows how it stands"
            return f"saga {saga.saga_id!r} can't get past step {intent.step!r} yet: {said}; {look}"
    return ""
