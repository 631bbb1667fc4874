"""What can go wrong with a call: each trouble by itself.

A trouble stands at one call of one step and strikes there once, or until it is lifted. It may keep the request from
arriving, lose or replace the answer, let a copy arrive, end the coordinator before or after one of its writes, or end
the participant before it commits. What it holds back arrives when the matrix says so: after the saga's end.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, NoReturn, Protocol

from amends.testing import answers
from amends.testing.in_process_context import ProcessDied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias

    from amends.testing.seam import CallSite, WriteSite
    from amends_coordinator.bootstrap import Answer

    Send: TypeAlias = Callable[[], Awaitable[Answer]]

ACTION, COMPENSATION, LOOKUP = "action", "compensation", "lookup"


class Scene(Protocol):
    """What a trouble can do beside answering a call."""

    @property
    def deadline_s(self) -> float:
        """The saga's deadline, on the loop's clock."""
        ...

    @property
    def too_late_s(self) -> float:
        """Longer than a call may take, in seconds."""
        ...

    async def kill(self) -> NoReturn:
        """End this incarnation of the coordinator, and whoever calls this with it; another one takes over."""
        ...

    async def abort(self) -> None:
        """Ask the saga to roll back, and note whether that was accepted."""
        ...

    def abort_soon(self) -> None:
        """The same, as soon as whoever calls this has gone on."""
        ...

    async def restart(self, participant: str) -> None:
        """End a participant's process and begin another one: what it had in memory is gone."""
        ...

    def keep(self, send: Send) -> None:
        """Keep a request on its way until after the saga's end."""
        ...

    async def arrive(self) -> None:
        """Let what was kept arrive now, one after the other."""
        ...


class Trouble:
    """One thing that goes wrong at one call of one step. This one lets everything pass.

    Args:
        step: the step's name.
        direction: which of its calls.
        for_good: whether it strikes until it is lifted; else only once.
    """

    def __init__(self, step: str, direction: str = ACTION, *, for_good: bool = False) -> None:
        self.at = (step, direction)
        self.for_good = for_good
        self.strike_count = 0
        self.lifted = False

    def strikes(self, step: str, direction: str) -> bool:
        """Whether it strikes here and now; that is counted."""
        if (step, direction) != self.at or self.lifted or (self.strike_count and not self.for_good):
            return False
        self.strike_count += 1
        return True

    async def call(self, scene: Scene, site: CallSite, send: Send) -> Answer | None:
        """Around a call of any step; None where it leaves the call alone."""
        return None

    async def before_write(self, scene: Scene, site: WriteSite) -> None:
        """Before a write of the ledger."""

    async def after_write(self, scene: Scene, site: WriteSite) -> None:
        """After it."""

    def before_commit(self, site: CallSite) -> None:
        """In the participant, just before a guard commits."""


class _AtCalls(Trouble, ABC):
    """A trouble with calls only."""

    async def call(self, scene: Scene, site: CallSite, send: Send) -> Answer | None:
        return await self.strike(scene, site, send) if self.strikes(site.step, site.direction) else None

    @abstractmethod
    async def strike(self, scene: Scene, site: CallSite, send: Send) -> Answer:
        """What it makes of the call."""


class RequestLost(_AtCalls):
    """The request never arrives, and nobody is told so."""

    async def strike(self, scene: Scene, site: CallSite, send: Send) -> Answer:
        return answers.lost("the connection broke before the request arrived")


class RequestLate(_AtCalls):
    """The first request arrives after everything; all others never do."""

    async def strike(self, scene: Scene, site: CallSite, send: Send) -> Answer:
        if self.strike_count == 1:
            scene.keep(send)
        return answers.lost("the network holds the request back")


class RequestLateOnce(_AtCalls):
    """The first request arrives after everything; the others arrive as they should."""

    async def strike(self, scene: Scene, site: CallSite, send: Send) -> Answer:
        scene.keep(send)
        return answers.lost("the network holds the request back")


class ArrivesBesideUndo(_AtCalls):
    """What was kept arrives at the same moment as the call that this stands at."""

    async def strike(self, scene: Scene, site: CallSite, send: Send) -> Answer:
        answer, _ = await asyncio.gather(send(), scene.arrive())
        return answer


class NotSent(_AtCalls):
    """Nobody is there to be called, for `down_s` seconds or (0) until the saga's deadline is over."""

    def __init__(self, step: str, direction: str = ACTION, *, down_s: float = 0.0) -> None:
        super().__init__(step, direction, for_good=True)
        self._down_s = down_s
        self._until_s: float | None = None

    async def strike(self, scene: Scene, site: CallSite, send: Send) -> Answer:
        now_s = asyncio.get_running_loop().time()
        if self._until_s is None:
            self._until_s = now_s + self._down_s if self._down_s else scene.deadline_s + 1.0
        return answers.not_sent("the participant is down") if now_s < self._until_s else await send()


class Refused(_AtCalls):
    """The participant says no, and does nothing."""

    def __init__(self, step: str, direction: str = ACTION, *, sealed: bool = False, for_good: bool = False) -> None:
        super().__init__(step, direction, for_good=for_good)
        self._sealed = sealed

    async def strike(self, scene: Scene, site: CallSite, send: Send) -> Answer:
        return answers.refused("the fault matrix says no", sealed=self._sealed)


class ReplyLost(_AtCalls):
    """The participant does its work, and its reply is lost."""

    async def strike(self, scene: Scene, site: CallSite, send: Send) -> Answer:
        await send()
        return answers.lost("the connection broke before the reply arrived")


class DiesBeforeReply(_AtCalls):
    """The participant does its work, for good, and its process dies before it has replied."""

    async def strike(self, scene: Scene, site: CallSite, send: Send) -> Answer:
        await send()
        await scene.restart(site.participant)
        return answers.lost("the participant's process died before its reply had left")


class ReplyLate(_AtCalls):
    """The participant does its work, and its reply comes when the call's deadline is over."""

    async def strike(self, scene: Scene, site: CallSite, send: Send) -> Answer:
        await send()
        await asyncio.sleep(scene.too_late_s)
        return answers.lost("the reply came too late", code="DEADLINE_EXCEEDED")


class LostThenRefused(_AtCalls):
    """The participant does its work, the reply is lost, and the second attempt is answered with a no."""

    def __init__(self, step: str, direction: str = ACTION) -> None:
        super().__init__(step, direction, for_good=True)

    async def strike(self, scene: Scene, site: CallSite, send: Send) -> Answer:
        if self.strike_count == 2:
            return answers.refused("the fault matrix says no", sealed=False)
        answer = await send()
        return answers.lost("the connection broke before the reply arrived") if self.strike_count == 1 else answer


class DuplicateAtOnce(_AtCalls):
    """Two copies of the request arrive at the same moment; the first answer counts."""

    async def strike(self, scene: Scene, site: CallSite, send: Send) -> Answer:
        first, _ = await asyncio.gather(send(), send())
        return first


class DuplicateLater(_AtCalls):
    """A copy of the request arrives after the saga's end."""

    async def strike(self, scene: Scene, site: CallSite, send: Send) -> Answer:
        scene.keep(send)
        return await send()


class GarbageReply(_AtCalls):
    """The participant does its work, and what arrives of its reply can't be read."""

    async def strike(self, scene: Scene, site: CallSite, send: Send) -> Answer:
        await send()
        return answers.garbage()


class SoftAbort(_AtCalls):
    """The participant does its work and asks for the saga to be rolled back."""

    async def strike(self, scene: Scene, site: CallSite, send: Send) -> Answer:
        return answers.with_abort(await send(), "the fault matrix asks for it")


class AbortBefore(_AtCalls):
    """Somebody aborts the saga just before the request arrives."""

    async def strike(self, scene: Scene, site: CallSite, send: Send) -> Answer:
        await scene.abort()
        return await send()


class AbortDuring(_AtCalls):
    """Somebody aborts the saga when the work is done and the reply is on its way."""

    async def strike(self, scene: Scene, site: CallSite, send: Send) -> Answer:
        answer = await send()
        await scene.abort()
        return answer


class TimeoutDuring(_AtCalls):
    """The participant is down until just before the saga's deadline; then its work is done, and no reply comes before
    the deadline is over.
    """

    MARGIN_S = 6.0
    """Longer than the longest pause between two attempts before the point of no return."""

    def __init__(self, step: str, direction: str = ACTION) -> None:
        super().__init__(step, direction, for_good=True)

    async def strike(self, scene: Scene, site: CallSite, send: Send) -> Answer:
        left_s = scene.deadline_s - asyncio.get_running_loop().time()
        if left_s > self.MARGIN_S:
            return answers.not_sent("the participant is down")
        answer = await send()
        await asyncio.sleep(max(0.0, left_s + 1.0))
        return answer


class KilledAfterEffect(_AtCalls):
    """The coordinator is killed when the work is done and the reply is on its way."""

    async def strike(self, scene: Scene, site: CallSite, send: Send) -> Answer:
        await send()
        return await scene.kill()


class Moment(Enum):
    """Where, about a write of the ledger, something happens to the coordinator."""

    BEFORE_INTENT = "before the write that announces the call"
    AFTER_INTENT = "after the write that announces the call"
    BEFORE_RECORD = "before the write that records the answer"
    AFTER_RECORD = "after the write that records the answer"


_ANNOUNCED = frozenset({Moment.BEFORE_INTENT, Moment.AFTER_INTENT})
_BEFORE = frozenset({Moment.BEFORE_INTENT, Moment.BEFORE_RECORD})


class _AtWrites(Trouble, ABC):
    """A trouble with a write about one call."""

    def __init__(self, step: str, direction: str = ACTION, *, moment: Moment) -> None:
        super().__init__(step, direction)
        self._moment = moment

    def _is_it(self, site: WriteSite) -> bool:
        announced = self._moment in _ANNOUNCED
        return any(
            (each.step, each.direction) == self.at and announced is (each.state == "PENDING" and each.begins)
            for each in site.changes
        ) and self.strikes(*self.at)

    async def before_write(self, scene: Scene, site: WriteSite) -> None:
        if self._moment in _BEFORE and self._is_it(site):
            await self.strike(scene)

    async def after_write(self, scene: Scene, site: WriteSite) -> None:
        if self._moment not in _BEFORE and self._is_it(site):
            await self.strike(scene)

    @abstractmethod
    async def strike(self, scene: Scene) -> None:
        """What happens then."""


class Killed(_AtWrites):
    """The coordinator is killed about a write."""

    async def strike(self, scene: Scene) -> None:
        await scene.kill()


class AbortAfter(_AtWrites):
    """Somebody aborts the saga as soon as an answer is recorded."""

    def __init__(self, step: str, direction: str = ACTION) -> None:
        super().__init__(step, direction, moment=Moment.AFTER_RECORD)

    async def strike(self, scene: Scene) -> None:
        scene.abort_soon()


class DiesBeforeCommit(Trouble):
    """The participant's process dies when its handler has returned, before what it did is committed."""

    def before_commit(self, site: CallSite) -> None:
        if self.strikes(site.step, site.direction):
            raise ProcessDied
