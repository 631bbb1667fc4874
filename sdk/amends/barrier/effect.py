"""`barrier.effect`: an effect outside the participant's own database, such as a call of another company's API.

    async with barrier.effect(sessions) as effect:            # async_sessionmaker, in an `async def` handler
        booking = await provider.book(..., idempotency_key=effect.key_uuid)
        return BookResponse(booking_id=booking.id)

No transaction of ours can hold what happens there. So the barrier writes down that the effect begins, in a transaction
of its own, before the body runs; and what came of it after the handler has returned. In between only the provider
knows. A body runs again when an attempt did not end well, always under the same key, by which the provider does its
part once; what undoes it asks the provider by the action's key wherever nobody told what became of it.

What the provider must offer: idempotency keys that it remembers as long as a saga may run, and undoing by that key, in
such a way that the undone request can't arrive afterwards. Where it can't do the latter, the step's guarantee is `KEY`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from amends.barrier.calls import guarded_call
from amends.barrier.effect_course import EffectCourse, EffectState
from amends.participant import wire
from amends.participant.guards import Decided
from amends.participant.refusals import Rejected, TryLater

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from types import TracebackType

    from google.protobuf.message import Message

    from amends.participant.guards import Verdict

NAME = "barrier.effect"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What the body of an effect needs to know.

    Attributes:
        key: the call's idempotency key, the same with every attempt: hand it, or its other form, to the provider.
        key_uuid: the same as a UUID, for providers that want one.
        action_key: the key that the action was called with: of this call itself where it is the action.
        action_key_uuid: the same as a UUID: what a compensation and a lookup ask the provider by.
        started_before: an earlier attempt ran this body, to whatever end.
        action: on a compensation and a lookup, what is known of the action. `STARTED`: nobody told what became of it,
            ask the provider. `DONE`: it happened. None where the call is the action. Where another participant was
            called with the action, this one knows nothing, and it is `STARTED`.
        action_response: on a compensation, what the action answered, if it is `DONE`.
    """

    key: str
    key_uuid: str
    action_key: str
    action_key_uuid: str
    started_before: bool
    action: EffectState | None
    action_response: Message | None


@overload
def effect(sessions: async_sessionmaker[Any]) -> AbstractAsyncContextManager[Effect]: ...  # Any: any kind of session
@overload
def effect(sessions: sessionmaker[Any]) -> AbstractContextManager[Effect]: ...  # Any: the same
def effect(
    sessions: async_sessionmaker[Any] | sessionmaker[Any],  # Any: the same
) -> AbstractAsyncContextManager[Effect] | AbstractContextManager[Effect]:
    """Guard an effect outside the database, in an action, a compensation or a lookup.

    * Action: return the response once the provider has said yes, and raise `Rejected(..., sealed=True)` when it has
      said no to this very key. That, and what the first attempt refuses by itself, is recorded and repeated for good
      (for compensatable and pivot steps). A refusal that a later attempt raises by itself is not: the earlier one may
      have had its effect.
    * Compensation: its body runs if the action was begun. From then on the action is never run again.
    * Lookup: its body runs if the action was begun and nobody told what became of it. Return the action's response if
      the provider has it, else raise `Rejected(..., code=NOT_FOUND)`; with `sealed=True` you promise that the provider
      will never do it any more.

    Every other exception leaves the effect begun, and the coordinator calls again.

    Args:
        sessions: of a database with the tables in `TABLES`: PostgreSQL or SQLite. No session is open while the body
            runs, so the body may take as long as the call's deadline allows.

    Raises (on entering the block):
        BarrierUseError: it can't be used here; the text says why.
        TryLater: the database can't be reached, or its pool is exhausted: nothing was begun.
    """
    return AsyncEffect(sessions) if isinstance(sessions, async_sessionmaker) else SyncEffect(sessions)


class AsyncEffect:
    """The block and the guard of an `async def` handler."""

    def __init__(self, sessions: async_sessionmaker[AsyncSession]) -> None:
        self._sessions = sessions
        self.course: EffectCourse

    async def __aenter__(self) -> Effect:
        self.course = EffectCourse(guarded_call(self, NAME, threaded=False))
        async with self._sessions() as session:
            verdict = await session.run_sync(self.course.enter)
        if verdict is not None:
            raise Decided
        return _told(self.course)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.course.left_by = error

    @property
    def verdict(self) -> Verdict | None:
        """See `guards.Guard`."""
        return self.course.verdict

    async def returned(self, response: Message, *, abort_reason: bytes | None) -> Verdict:
        """See `guards.Guard`."""
        refused = self.course.refused
        if refused is not None:
            return await self._refused(refused)
        async with self._sessions() as session:
            return await session.run_sync(self.course.finish, response.SerializeToString(), abort_reason)

    async def raised(self, fault: BaseException) -> Verdict | None:
        """See `guards.Guard`."""
        return await self._refused(fault) if isinstance(fault, Rejected) else None

    async def _refused(self, refusal: Rejected | TryLater) -> Verdict:
        if isinstance(refusal, TryLater):
            return wire.not_now(refusal)
        async with self._sessions() as session:
            return await session.run_sync(self.course.record, refusal)


class SyncEffect:
    """The block and the guard of a plain `def` handler."""

    def __init__(self, sessions: sessionmaker[Session]) -> None:
        self._sessions = sessions
        self.course: EffectCourse

    def __enter__(self) -> Effect:
        self.course = EffectCourse(guarded_call(self, NAME, threaded=True))
        with self._sessions() as session:
            verdict = self.course.enter(session)
        if verdict is not None:
            raise Decided
        return _told(self.course)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.course.left_by = error

    @property
    def verdict(self) -> Verdict | None:
        """See `guards.SyncGuard`."""
        return self.course.verdict

    def returned(self, response: Message, *, abort_reason: bytes | None) -> Verdict:
        """See `guards.SyncGuard`."""
        refused = self.course.refused
        if refused is not None:
            return self._refused(refused)
        with self._sessions() as session:
            return self.course.finish(session, response.SerializeToString(), abort_reason)

    def raised(self, fault: BaseException) -> Verdict | None:
        """See `guards.SyncGuard`."""
        return self._refused(fault) if isinstance(fault, Rejected) else None

    def _refused(self, refusal: Rejected | TryLater) -> Verdict:
        if isinstance(refusal, TryLater):
            return wire.not_now(refusal)
        with self._sessions() as session:
            return self.course.record(session, refusal)


def _told(course: EffectCourse) -> Effect:
    step = course.call.step
    return Effect(
        key=step.key,
        key_uuid=step.key_uuid,
        action_key=step.action_key or step.key,
        action_key_uuid=step.action_key_uuid or step.key_uuid,
        started_before=course.started_before,
        action=course.action,
        action_response=step.action_response,
    )
