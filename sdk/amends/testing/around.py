"""Puts a fault around the calls and writes of one incarnation of a coordinator, and keeps the journal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from amends.participant.context import Direction, StepKind
from amends.participant.guards import about_to_commit
from amends.testing.in_process_context import ProcessDied
from amends.testing.journal import Called, CoordinatorFailed, Delivered, Died, Heard, Noted, Replied, Written
from amends.testing.seam import CallSite, Change, WriteSite
from amends_coordinator.bootstrap import Surrounding

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amends.testing.journal import Happening
    from amends.testing.seam import Fault
    from amends_coordinator.bootstrap import Answer, CallRequest, LedgerWrite

T = TypeVar("T")


class Around(Surrounding):
    """What stands around one incarnation.

    Args:
        fault: what goes wrong.
        note: writes something into the journal.
        later: does something in a task that outlives the incarnation.
        written: is called after every write.
        died: is called with the name of a participant whose process dies, in whatever thread that happens.

    Attributes:
        is_dead: whether the incarnation was killed: it hears nothing any more.
        leaves_calls_behind: whether calls that are given up run on at the participant, because nobody tells it.
    """

    def __init__(
        self,
        fault: Fault,
        *,
        note: Callable[[Happening], None],
        later: Callable[[Awaitable[Answer]], asyncio.Task[Answer]],
        written: Callable[[], None],
        died: Callable[[str], None],
    ) -> None:
        self._fault, self._note, self._later, self._written, self._died = fault, note, later, written, died
        self.is_dead = False
        self.leaves_calls_behind = False

    async def call(self, request: CallRequest, send: Callable[[], Awaitable[Answer]]) -> Answer:
        """See `Surrounding`."""
        site = _call_site(request)
        self._note(Called(site))
        heard: Answer | None = None
        try:
            answer = await self._fault.call(site, lambda: self._deliver(site, send))
            if self.is_dead:
                await asyncio.Event().wait()  # until this task is cancelled, as everything of a killed process is
            heard = answer
            return answer
        except Exception as error:
            self._note(Noted(f"the fault raised {error!r}"))
            raise
        finally:
            self._note(Heard(site, heard))

    async def write(self, write: LedgerWrite, commit: Callable[[], Awaitable[T]]) -> T:
        """See `Surrounding`."""
        site = _write_site(write)

        async def committing() -> T:
            result = await commit()
            self._note(Written(site))
            self._written()
            return result

        return await self._fault.write(site, committing)

    def failed(self, saga_id: str, error: BaseException) -> None:
        """See `Surrounding`."""
        self._note(CoordinatorFailed(saga_id, repr(error)))
        self._written()

    async def _deliver(self, site: CallSite, send: Callable[[], Awaitable[Answer]]) -> Answer:
        """Make a call in a task of its own, which a coordinator that is killed may leave behind."""
        task = self._later(self._delivered(site, send))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not self.leaves_calls_behind:
                task.cancel()
            raise

    async def _delivered(self, site: CallSite, send: Callable[[], Awaitable[Answer]]) -> Answer:
        def commit() -> None:
            try:
                self._fault.commit(site)
            except BaseException as death:
                self._note(Died(site))
                self._died(site.participant)
                raise ProcessDied from death

        about_to_commit.set(commit)
        self._note(Delivered(site))
        answer: Answer | None = None
        try:
            answer = await send()
            return answer
        finally:
            self._note(Replied(site, answer))


def _call_site(request: CallRequest) -> CallSite:
    return CallSite(
        saga_id=request.saga_id,
        step=request.step,
        direction=Direction(request.direction.value.lower()),
        kind=StepKind(request.kind.value.lower()),
        attempt=request.attempt,
        method=request.method,
        participant=request.participant,
        key=request.key,
    )


def _write_site(write: LedgerWrite) -> WriteSite:
    changes = tuple(
        Change(
            step=intent.step,
            direction=Direction(intent.direction.value.lower()),
            state=intent.state.value,
            attempt=intent.attempt,
            begins=intent.in_flight,
        )
        for intent in write.intents
    )
    return WriteSite(saga_id=write.saga.id, state=write.saga.state.value, changes=changes, verb=write.verb)
