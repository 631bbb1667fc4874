"""Plays the troubles of one case, and writes down every call that it stands around."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from amends.testing.promises import SeenCall

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from amends.testing.faults import Scene, Send, Trouble
    from amends.testing.seam import CallSite, WriteSite
    from amends_coordinator.bootstrap import Answer

T = TypeVar("T")


class Script:
    """The fault of one case, as a rehearsal takes it.

    Args:
        troubles: at a call that concerns several of them the first one stands outermost.
        scene: what they can do beside answering.

    Attributes:
        calls: every attempt that was made, in the order in which they began.
        incarnation: counts the coordinators, from 1.
    """

    def __init__(self, troubles: Sequence[Trouble], scene: Scene) -> None:
        self.troubles = tuple(troubles)
        self._scene = scene
        self.calls: list[SeenCall] = []
        self.incarnation = 1
        self._order = 0

    @property
    def struck(self) -> bool:
        """Whether every trouble has struck."""
        return all(trouble.strike_count for trouble in self.troubles)

    def lift(self) -> None:
        """From now on nothing goes wrong any more."""
        for trouble in self.troubles:
            trouble.lifted = True

    async def call(self, site: CallSite, send: Send) -> Answer:
        """Around every call."""
        seen = SeenCall(
            step=site.step,
            direction=site.direction,
            key=site.key,
            attempt=site.attempt,
            incarnation=self.incarnation,
            order=self._next(),
        )
        self.calls.append(seen)
        try:
            answer = await self._answer(site, send)
            seen.outcome = str(answer.outcome)
        except asyncio.CancelledError:
            seen.outcome = "UNKNOWN"
            raise
        finally:
            seen.end_order = self._next()
        return answer

    async def write(self, site: WriteSite, commit: Callable[[], Awaitable[T]]) -> T:
        """Around every write of the ledger."""
        for trouble in self.troubles:
            await trouble.before_write(self._scene, site)
        result = await commit()
        for trouble in self.troubles:
            await trouble.after_write(self._scene, site)
        return result

    def commit(self, site: CallSite) -> None:
        """In a participant, just before a guard commits."""
        for trouble in self.troubles:
            trouble.before_commit(site)

    async def _answer(self, site: CallSite, send: Send) -> Answer:
        """What is heard of a call: each trouble stands around those that come after it."""
        for trouble in reversed(self.troubles):
            send = partial(self._around, trouble, site, send)
        return await send()

    async def _around(self, trouble: Trouble, site: CallSite, send: Send) -> Answer:
        answer = await trouble.call(self._scene, site, send)
        return await send() if answer is None else answer

    def _next(self) -> int:
        self._order += 1
        return self._order
