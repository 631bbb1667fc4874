"""Carries out the calls that reach a service: each key's work once, in one transaction with the memory of it.

What happens to a call, in order:

1. The journal gets a row: a call came.
2. In one transaction: the memory is asked for the key. Known, with the same request: the stored response is the answer
   and no work is done. Known, with another request: refused with `ABORTED`, which proves nothing to the coordinator.
   Unknown: the work is done, its response remembered, and the journal's row marked if the work changed anything. So a
   process that dies has either done the work and knows it, or has done nothing.
3. The reply is held back, if a planted fault says so.
4. The journal's row is closed with the outcome.

A caller that gives up cancels the handler, but not the thread that works for it: the handler waits for the thread, so
that the journal never says that a call ended before its work did.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

import grpc
from google.protobuf.message import Message

from amends import Rejected, current_step
from keyed.holds import ReplyHold, hold_reply
from keyed.journal import CallOutcome, EntryId, Journal, call_journal_table
from keyed.memory import CallIdentity, KeyReusedError, Memory, answered_call_table, request_hash

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from sqlalchemy import Connection, Engine, MetaData

Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)
T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Answer(Generic[Res]):
    """What work came to: the response, and whether anything was changed for it."""

    response: Res
    effect_made: bool = True


class _Course:
    """How one call has gone so far; the journal gets what stands here when it ends."""

    __slots__ = ("entry", "outcome")

    def __init__(self, entry: EntryId) -> None:
        self.entry, self.outcome = entry, CallOutcome.FAILED


class KeyedCalls:
    """Carries out one service's calls on its database."""

    def __init__(self, engine: Engine, tables: MetaData, *, holds: Sequence[ReplyHold] = ()) -> None:
        self._engine, self._holds = engine, tuple(holds)
        self._journal = Journal(engine, tables.tables["call_journal"])
        self._memory = Memory(tables.tables["answered_call"])

    async def once(
        self,
        request: Req,
        work: Callable[[Connection, Req], Answer[Res]],
        response: type[Res],
        context: grpc.aio.ServicerContext[Req, Awaitable[Res]],
    ) -> Res:
        """Answers an action or a compensation, doing its work at most once per idempotency key.

        Arguments:
            request: what was asked.
            work: does it, in the transaction of the given connection; where it raises, nothing is done.
            response: the type of the answer.
            context: the call, for the refusal of a key that was used before for another request.
        """
        method = _method_of(request)
        async with self._journalled(method) as course:
            try:
                answer, course.outcome = await _to_the_end(self._transact, course.entry, request, work, response)
            except KeyReusedError as reused:
                course.outcome = CallOutcome.KEY_REUSED
                await context.abort(grpc.StatusCode.ABORTED, str(reused))
            await hold_reply(self._holds, method, request, attempt=current_step().attempt)
        return answer

    async def look_up(self, request: Message, find: Callable[[Connection], Res | None]) -> Res:
        """Answers a lookup: what `find` finds, else `NOT_FOUND`. Nothing is remembered, every call looks again."""
        async with self._journalled(_method_of(request)) as course:
            found = await _to_the_end(self._read, find)
            if found is None:
                course.outcome = CallOutcome.NOT_FOUND
                raise Rejected(
                    f"nothing was done for {current_step().action_key!r} yet", code=grpc.StatusCode.NOT_FOUND
                )
            course.outcome = CallOutcome.DONE
        return found

    @asynccontextmanager
    async def _journalled(self, method: str) -> AsyncGenerator[_Course]:
        course = _Course(await asyncio.to_thread(self._journal.begin, method, current_step()))
        try:
            yield course
        except Rejected:
            if course.outcome is CallOutcome.FAILED:
                course.outcome = CallOutcome.REFUSED
            raise
        except asyncio.CancelledError:
            course.outcome = CallOutcome.CANCELLED
            raise
        finally:
            await asyncio.to_thread(self._journal.end, course.entry, course.outcome)

    def _transact(
        self,
        entry: EntryId,
        request: Req,
        work: Callable[[Connection, Req], Answer[Res]],
        response: type[Res],
    ) -> tuple[Res, CallOutcome]:
        step = current_step()
        call = CallIdentity(
            ledger=step.ledger, key=step.key, method=_method_of(request), request_hash=request_hash(request)
        )
        with self._engine.begin() as connection:
            stored = self._memory.recall(connection, call)
            if stored is not None:
                return response.FromString(stored), CallOutcome.REPLAYED
            answer = work(connection, request)
            self._memory.remember(connection, call, answer.response.SerializeToString(deterministic=True))
            if answer.effect_made:
                self._journal.mark_effect(connection, entry)
        return answer.response, CallOutcome.DONE

    def _read(self, find: Callable[[Connection], T]) -> T:
        with self._engine.begin() as connection:
            return find(connection)


def declare_call_tables(tables: MetaData) -> MetaData:
    """Adds the tables that `KeyedCalls` needs to a service's own, and returns them all."""
    answered_call_table(tables)
    call_journal_table(tables)
    return tables


def _method_of(request: Message) -> str:
    # Each method has a request of its own, named after it: buf lint holds that.
    return request.DESCRIPTOR.name.removesuffix("Request")


async def _to_the_end(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Runs the function in a thread and waits for its end, also when the caller has given up meanwhile."""
    working = asyncio.ensure_future(asyncio.to_thread(function, *arguments, **named))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise
