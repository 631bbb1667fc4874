"""How one call goes, from the request's bytes to what is answered, whatever server it came through.

1. The metadata says which step it is; calls that no coordinator made have none, and get the same answers without it.
   A full participant says that it did not begin (`UNAVAILABLE`, `amends-executed: no`).
2. It isn't run at all where the metadata or the request can't be read (`UNIMPLEMENTED`: the two ends speak different
   versions), and where `key_memory` knows the key from another request (`ABORTED`: unknown). A copy of a call that is
   running waits for its end first.
3. The handler runs, with its step and a span below the caller's as the current ones, and may end in these ways, of
   which only the first four prove anything (semantics: what an answer proves):

   * it returns its response: OK, with `amends-abort-bin` if it asked for the saga to be aborted;
   * it raises `Rejected`: one of the refusal codes, with `ErrorInfo`;
   * it raises `TryLater`: `UNAVAILABLE` with `amends-executed: no`;
   * it aborts or sets a code through gRPC's own context: passed on as it is;
   * it raises anything else: logged here with its traceback, sent as `UNKNOWN` without its text;
   * it returns nothing, or what is no message of its response's type: logged, sent as `INTERNAL`;
   * it is cancelled, because the caller is gone or its deadline is over: nobody hears an answer. One that is cancelled
     by something of its own has raised that.

4. A handler that opened a guard (`guards`) has it decide with: it commits after the return, and rolls back after all
   else.

What is written here once holds for handlers on an event loop and in threads (`threads.at_once`): only what has to be
awaited is. How calls come and answers go is in `aio_server` and `sync_server`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Coroutine
from typing import Any, cast

import grpc

from amends.participant import wire
from amends.participant.arrived_call import Call, HandlerContext
from amends.participant.context import StepContext, enter, leave, step_of
from amends.participant.guards import Answer, Guard, SyncGuard, Verdict, tell_about_to_commit
from amends.participant.in_flight import CallsInFlight
from amends.participant.key_memory import KeyInUseError, KeyMemory
from amends.participant.refusals import REFUSAL_CODES, NotInStep, Rejected, TryLater, refusal_in
from amends.participant.services import place_of
from amends.participant.threads import until_ended
from amends.participant.tracing import StepSpan

log = logging.getLogger("amends.participant")

ENDS_MORE_THAN_A_CALL = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)


class MalformedStepError(Exception):
    """The call claims to be a step, but its metadata or its request can't be read; the handler must not run."""


class StepCalls:
    """Carries out the calls of one participant.

    Args:
        participant: its name, the domain of its refusals.
        capacity: how many steps it takes at once; 0 for any number.
        in_flight: counts the calls.
    """

    def __init__(self, participant: str, *, capacity: int, in_flight: CallsInFlight) -> None:
        self.participant, self._capacity = participant, capacity
        self._in_flight, self._keys = in_flight, KeyMemory()

    async def answer(self, call: Call) -> Verdict:
        """What a call is answered with: the whole way of it."""
        self._in_flight.begin()
        try:
            step = self._step(call)
            if step is None:
                return await call.place.run(self._judge(call, None))
            while (other := self._keys.begin(step, call.method.name, call.request.sent)) is not None:
                await call.place.wait(other, step)
            try:
                traceparent = step.traceparent
                course = self._judge(call, step) if traceparent is None else self._traced(call, step, traceparent)
                return await call.place.run(course)
            finally:
                self._keys.end(step)
        except TryLater as later:
            return wire.not_now(later)
        except MalformedStepError as problem:
            log.warning("a call of %s was refused: %s", call.method.name, problem)
            return wire.not_readable(str(problem))
        except KeyInUseError as problem:
            log.warning("a call of %s was refused: %s", call.method.name, problem)
            return wire.key_in_use(str(problem))
        finally:
            self._in_flight.end()

    def _step(self, call: Call) -> StepContext | None:
        """The call's step, if it has one, and nothing keeps it from being carried out that can be seen at once."""
        try:
            step = step_of(call.metadata, time_remaining=call.place.context.time_remaining)
        except NotInStep as problem:
            raise MalformedStepError(str(problem)) from problem
        if step is not None and 0 < self._capacity < self._in_flight.count:
            raise TryLater(f"{self.participant} is full: {self._capacity} at once is all it takes")
        if not call.request.readable:
            raise MalformedStepError(
                f"the request's bytes don't parse as what {call.method.name} takes: "
                "the coordinator and this participant have different protos"
            )
        if step is not None:
            step.state.serving = (self.participant, call)
        return step

    async def _traced(self, call: Call, step: StepContext, traceparent: str) -> Verdict:
        """Run the handler within a span of its own, and make an answer of how it ends."""
        with StepSpan(call.method.name, step, traceparent) as span:
            verdict = await self._judge(call, step)
            span.ended(verdict)
            return verdict

    async def _judge(self, call: Call, step: StepContext | None) -> Verdict:
        """The same without a span."""
        try:
            return await _run(call, step)
        except Rejected as no:
            return wire.rejected(no, participant=self.participant)
        except TryLater as later:
            return wire.not_now(later)
        except grpc.aio.AbortError:
            return _said(call.place.context)
        except BaseException as fault:  # not all that libraries raise to get out is an Exception
            if _ends_more_than_the_call(fault, call):
                raise
            log.exception("the handler of %s raised %s%s", call.method.name, type(fault).__name__, _named(step))
            return wire.handler_raised(call.method.name, fault)


def _ends_more_than_the_call(fault: BaseException, call: Call) -> bool:
    """Whether it is for others than the caller: the call itself was cancelled, or the process is to end.

    In a thread nothing is; and a coroutine that something of its own cancelled has raised that like anything else.
    """
    if call.method.plain or not isinstance(fault, ENDS_MORE_THAN_A_CALL):
        return False
    task = asyncio.current_task()
    return not isinstance(fault, asyncio.CancelledError) or (task is not None and task.cancelling() > 0)


async def _run(call: Call, step: StepContext | None) -> Verdict:
    """Run a handler, and let the guard that it opened decide how the call ends."""
    returned: object = None
    fault: BaseException | None = None
    try:
        returned = await _run_handler(call, step)
    except BaseException as raised:  # noqa: BLE001 - everything is raised again, below
        fault = refusal_in(raised)
    guard = step.state.guard if step is not None else None
    if guard is not None and step is not None:
        verdict = await _guarded(guard, call, step, returned, fault)
        if verdict is not None:
            return verdict
    if fault is not None:
        raise fault
    return _answered(call, step, returned)


async def _run_handler(call: Call, step: StepContext | None) -> object:
    """What a handler returns, run with its step as the current one: a plain one at once, the others after what has to
    be awaited.
    """
    token = enter(step) if step is not None else None
    try:
        returned = call.method.behaviour(call.message, call.place.context)
        if not inspect.isawaitable(returned):
            return returned
        if call.method.plain:
            raise _not_async(call, returned)
        return await returned
    finally:
        if step is not None and token is not None:
            leave(step, token)


def _not_async(call: Call, returned: Awaitable[object]) -> TypeError:
    if isinstance(returned, Coroutine):
        returned.close()
    return TypeError(
        f"{place_of(call.method.behaviour)} is no `async def`, but what it returned has to be awaited: make it one; if "
        "it is decorated, the decorator has to use functools.wraps, or be `async` itself"
    )


async def _guarded(
    guard: Guard | SyncGuard, call: Call, step: StepContext, returned: object, fault: BaseException | None
) -> Verdict | None:
    """What the guard makes of how the handler ended; None: it is answered as without one."""
    if guard.verdict is not None and not (fault is not None and _ends_more_than_the_call(fault, call)):
        return guard.verdict
    if fault is None and isinstance(returned, call.method.response) and _code(call.place.context) == 0:
        try:
            tell_about_to_commit()
        except BaseException as death:
            await _to_the_end(guard.raised(death))
            raise
        return await _to_the_end(guard.returned(returned, abort_reason=step.state.abort_reason))
    refused = _refused(call.place.context) if fault is None or isinstance(fault, grpc.aio.AbortError) else None
    return await _to_the_end(guard.raised(refused or fault or RuntimeError("the handler answered without a response")))


async def _to_the_end(deciding: Verdict | Coroutine[Any, Any, Verdict | None] | None) -> Verdict | None:
    """What a guard decides, which runs to its end also when the caller is gone: half a commit is none."""
    if not isinstance(deciding, Coroutine):
        return deciding
    task = asyncio.create_task(deciding, name="amends-guard")
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await until_ended(task)
        if not task.cancelled() and task.exception() is not None:
            log.warning("nobody hears of it any more: %s", task.exception(), exc_info=task.exception())
        raise


def _answered(call: Call, step: StepContext | None, returned: object) -> Verdict:
    method = call.method
    if _code(call.place.context) != 0:
        return _said(call.place.context)
    if not isinstance(returned, method.response):
        refusal = wire.wrong_response(method.name, expected=method.response.DESCRIPTOR.full_name, got=returned)
        log.error("%s: %s%s", place_of(method.behaviour), refusal.text, _named(step))
        return refusal
    try:
        response = returned.SerializeToString()
    except Exception as fault:
        log.exception("%s returned a message that can't be sent%s", place_of(method.behaviour), _named(step))
        return wire.unsendable_response(method.name, fault)
    return Answer(response=response, abort_reason=step.state.abort_reason if step is not None else None)


def _refused(context: HandlerContext) -> Rejected | None:
    """A clear no that the handler said in gRPC's own way: a guard keeps it like one that was raised."""
    said = _said(context)
    return Rejected(said.text, code=said.code) if said.code in REFUSAL_CODES else None


def _said(context: HandlerContext) -> wire.Refusal:
    """What the handler answered in gRPC's own way."""
    number = _code(context)
    code = next((each for each in grpc.StatusCode if each.value[0] == number), grpc.StatusCode.UNKNOWN)
    return wire.Refusal(code=code, text=context.details())


def _code(context: HandlerContext) -> int:
    # The stubs say grpc.StatusCode; gRPC's asyncio context says a number, and 0 until a handler sets one.
    code = context.code()
    return int(code.value[0]) if isinstance(code, grpc.StatusCode) else int(cast("int", code) or 0)


def _named(step: StepContext | None) -> str:
    return f" (key {step.key}, attempt {step.attempt})" if step else ""
