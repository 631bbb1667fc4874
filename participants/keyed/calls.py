"""Carries out the calls that reach a service: each key's work once, in one transaction with the memory of it.

The memory is asked for the key. Known, with the same request: the stored response is the answer and no work is done.
Known, with another request: refused with `ABORTED`, which proves nothing to the coordinator. Unknown: the work is done
and its response remembered. So a process that dies has either done the work and knows it, or has done nothing.

A caller that gives up cancels the handler, but not the thread that works for it: the handler waits for the thread.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

import grpc
from google.protobuf.message import Message

from amends import Rejected, current_step
from keyed.memory import CallIdentity, KeyReusedError, Memory, answered_call_table, request_hash

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

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


class KeyedCalls:
    """Carries out one service's calls on its database."""

    def __init__(self, engine: Engine, tables: MetaData) -> None:
        self._engine = engine
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
        try:
            return await _to_the_end(self._transact, request, work, response)
        except KeyReusedError as reused:
            await context.abort(grpc.StatusCode.ABORTED, str(reused))

    async def look_up(self, request: Message, find: Callable[[Connection], Res | None]) -> Res:
        """Answers a lookup: what `find` finds, else `NOT_FOUND`. Nothing is remembered, every call looks again."""
        found = await _to_the_end(self._read, find)
        if found is None:
            raise Rejected(f"nothing was done for {current_step().action_key!r} yet", code=grpc.StatusCode.NOT_FOUND)
        return found

    def _transact(self, request: Req, work: Callable[[Connection, Req], Answer[Res]], response: type[Res]) -> Res:
        step = current_step()
        call = CallIdentity(
            ledger=step.ledger, key=step.key, method=_method_of(request), request_hash=request_hash(request)
        )
        with self._engine.begin() as connection:
            # Two calls with one key must not both read "not done yet".
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            stored = self._memory.recall(connection, call)
            if stored is not None:
                return response.FromString(stored)
            answer = work(connection, request)
            self._memory.remember(connection, call, answer.response.SerializeToString(deterministic=True))
        return answer.response

    def _read(self, find: Callable[[Connection], T]) -> T:
        with self._engine.begin() as connection:
            return find(connection)


def declare_call_tables(tables: MetaData) -> MetaData:
    """Adds the tables that `KeyedCalls` needs to a service's own, and returns them all."""
    answered_call_table(tables)
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
