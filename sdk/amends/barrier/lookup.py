"""`barrier.lookup`: the whole handler of a lookup whose action runs below `barrier.transaction`.

async def FindAuthorization(self, request: FindRequest, context: ...) -> AuthorizeResponse:
    return await barrier.lookup(sessions, AuthorizeResponse)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from google.protobuf.message import DecodeError, Message
from sqlalchemy.ext.asyncio import async_sessionmaker

from amends.barrier.answers import verdict_of
from amends.barrier.calls import GuardedCall, guarded_call
from amends.barrier.databases import commit, connection_of, entering
from amends.barrier.entering import LEAVES_MARK, enter_lookup
from amends.barrier.errors import BarrierUseError, Unclear
from amends.barrier.waiting import in_time, limit_waiting
from amends.participant import wire
from amends.participant.context import Direction
from amends.participant.guards import Answer, Decided

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session, sessionmaker

    from amends.participant.guards import Verdict

ResponseT = TypeVar("ResponseT", bound=Message)

NAME = "barrier.lookup"


@overload
def lookup(sessions: async_sessionmaker[AsyncSession], response: type[ResponseT]) -> Awaitable[ResponseT]: ...
@overload
def lookup(sessions: sessionmaker[Session], response: type[ResponseT]) -> ResponseT: ...
def lookup(
    sessions: async_sessionmaker[Any] | sessionmaker[Any],  # Any: whatever session class the application has
    response: type[ResponseT],
) -> Awaitable[ResponseT] | ResponseT:
    """Answer what became of the action: its response, with the reason it gave for aborting the saga, or `NOT_FOUND`.

    `NOT_FOUND` is sealed, except for a retriable step: the action's key is marked, and will never run. The handler ends
    here: the answer is sent as it was stored, whatever stands behind this line.

    Args:
        sessions: the ones that the action's `barrier.transaction` has.
        response: what the action answers.

    Raises:
        BarrierUseError: it can't be used here; the text says why.
        TryLater: the database can't be reached: nothing was begun.
    """
    if isinstance(sessions, async_sessionmaker):
        return _lookup(sessions, response)
    return _lookup_in_thread(sessions, response)


async def _lookup(sessions: async_sessionmaker[AsyncSession], response: type[Message]) -> NoReturn:
    guard = _AsyncLookup()
    call = guarded_call(guard, NAME, threaded=False)
    async with sessions() as session:
        try:
            guard.verdict = await in_time(call, session, _look, call, response)
        except Unclear as problem:
            guard.verdict = wire.key_in_use(str(problem))
    raise Decided


def _lookup_in_thread(sessions: sessionmaker[Session], response: type[Message]) -> NoReturn:
    guard = _SyncLookup()
    call = guarded_call(guard, NAME, threaded=True)
    with sessions() as session:
        guard.verdict = _look(session, call, response)
    raise Decided


def _look(session: Session, call: GuardedCall, response: type[Message]) -> Verdict:
    """Ask, and leave the mark that the answer promises."""
    if call.step.direction is not Direction.LOOKUP:
        raise BarrierUseError(
            f"{NAME} answers lookups, and this call is its step's {call.step.direction}: use barrier.transaction"
        )
    try:
        with entering():
            connection = connection_of(session)
            limit_waiting(connection, call)
            entered = enter_lookup(connection, call)
    except Unclear as problem:
        return wire.key_in_use(str(problem))
    verdict = verdict_of(entered, call)
    assert verdict is not None, "a lookup has no body"
    if isinstance(verdict, Answer):
        _check_parses(verdict.response, response, call)
    if entered.do in LEAVES_MARK:
        commit(session)
    return verdict


def _check_parses(stored: bytes, response: type[Message], call: GuardedCall) -> None:
    try:
        response.FromString(stored)
    except DecodeError as problem:
        raise BarrierUseError(
            f"what the action of step {call.step.step} answered is no {response.DESCRIPTOR.full_name}: give {NAME} the "
            "action's own response type"
        ) from problem


class _AsyncLookup:
    """The guard of a lookup: it has a verdict, or nothing is known."""

    verdict: Verdict | None = None

    async def returned(self, response: Message, *, abort_reason: bytes | None) -> Verdict:
        """The handler made up an answer after the lookup had failed."""
        raise _failed()

    async def raised(self, fault: BaseException) -> Verdict | None:
        """Nothing was done, so nothing is undone."""
        return None


class _SyncLookup:
    """The same in a thread."""

    verdict: Verdict | None = None

    def returned(self, response: Message, *, abort_reason: bytes | None) -> Verdict:
        """The handler made up an answer after the lookup had failed."""
        raise _failed()

    def raised(self, fault: BaseException) -> Verdict | None:
        """Nothing was done, so nothing is undone."""
        return None


def _failed() -> BarrierUseError:
    return BarrierUseError(f"{NAME} failed, and the handler returned all the same: let its exception pass")
