"""Stands between gRPC and the handlers: gives them their step, and turns how they end into what the coordinator reads.

A handler may end in these ways, and only the first four prove anything (semantics: what an answer proves):

* it returns its response: OK, with `amends-abort-bin` if it asked for the saga to be aborted;
* it raises `Rejected`: one of the refusal codes, with `ErrorInfo`;
* it raises `TryLater`: `UNAVAILABLE` with `amends-executed: no`;
* it aborts through gRPC's own context: passed on as it is;
* it raises anything else: logged here with its traceback, sent as `UNKNOWN` without its text;
* it returns nothing, or a message of another type: logged, sent as `INTERNAL`;
* it is cancelled, because the caller is gone or its deadline is over: nobody hears an answer.

A handler that opened a guard (`guards`) has it decide with: it commits after the return, and rolls back after all else.

And it isn't run at all where the metadata or the request can't be read (`UNIMPLEMENTED`: the two ends speak different
versions), and where `key_memory` knows the key from another request (`ABORTED`: unknown). A copy of a call that is
running waits for its end first.

Calls that no coordinator made have no step; they get the same answers without it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import Token
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import grpc
from google.protobuf.message import DecodeError, Message
from opentelemetry import context as telemetry_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from amends.participant import wire
from amends.participant.context import ServedCall, StepContext, enter, leave, step_of
from amends.participant.guards import Answer, Guard
from amends.participant.in_flight import CallsInFlight
from amends.participant.key_memory import KeyInUseError, KeyMemory
from amends.participant.refusals import NotInStep, Rejected, TryLater
from amends.participant.services import ServedService, place_of

log = logging.getLogger("amends.participant")

T = TypeVar("T")

Pairs: TypeAlias = Iterable[tuple[str, str | bytes]]

# The stubs make requests and responses type variables of each call; here they are whatever the handler takes. At run
# time these classes take no parameters, so the names exist for checkers only.
if TYPE_CHECKING:
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
    Behaviour: TypeAlias = Callable[[Any, Context], Awaitable[object]]
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]

_propagator = TraceContextTextMapPropagator()


@dataclass(frozen=True, slots=True)
class _Method:
    """A unary method as it is served: its name, gRPC's handler, the servicer's own coroutine, its response class, and
    what makes a request of bytes.
    """

    name: str
    handler: Handler
    behaviour: Behaviour
    response: type[Message]
    parse: Callable[[bytes], Message]


class StepCalls(grpc.GenericRpcHandler):
    """The services of one participant as gRPC is to serve them: unary methods as steps, streams as they are.

    It takes the place of the services' own handlers, and is no interceptor, because gRPC hands it the metadata of each
    call, which reading it again through the handler's context costs as much as all the rest of this.

    Args:
        participant: its name, the domain of its refusals.
        services: the services.
        capacity: how many steps it takes at once; 0 for any number.
        in_flight: counts the calls.
    """

    def __init__(
        self, participant: str, *, services: Iterable[ServedService], capacity: int, in_flight: CallsInFlight
    ) -> None:
        self._participant, self._capacity = participant, capacity
        self._in_flight = in_flight
        self._services = tuple(services)
        self._responses = {path: cls for service in self._services for path, cls in service.responses().items()}
        self._methods: dict[str, _Method] = {}
        self._keys = KeyMemory()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        """The handler of one call."""
        path = handler_call_details.method
        method = self._methods.get(path)
        if method is None:
            handler = self._served(handler_call_details)
            if handler is None:
                return self._unknown(path)
            if handler.unary_unary is None:
                return handler
            method = self._methods[path] = self._method(path, handler)
        return self._answering(method, _pairs(handler_call_details.invocation_metadata))

    def _served(self, details: grpc.HandlerCallDetails) -> Handler | None:
        found = (service.handlers.service(details) for service in self._services)
        return next((handler for handler in found if handler is not None), None)

    def _unknown(self, path: str) -> Handler | None:
        """Says what is wrong with a call of a method that a service of ours doesn't have, in this process' stubs."""
        service = next((each for each in self._services if path.startswith(f"/{each.name}/")), None)
        if service is None:
            return None
        refusal = wire.unknown_method(path.removeprefix("/"), participant=self._participant, known=service.responses())

        async def refuse(_: bytes, context: Context) -> None:
            log.warning("%s", refusal.text)
            await context.abort(refusal.code, refusal.text)

        return grpc.unary_unary_rpc_method_handler(refuse)

    def _method(self, path: str, handler: Handler) -> _Method:
        # The stubs describe synchronous handlers; `services.read_servicer` made sure that this one is a coroutine.
        behaviour = cast("Behaviour", handler.unary_unary)
        parse = cast("Callable[[bytes], Message]", handler.request_deserializer)
        return _Method(path.removeprefix("/"), handler, behaviour, self._responses[path], parse)

    def _answering(self, method: _Method, metadata: Pairs) -> Handler:
        async def answer(request: bytes, context: Context) -> object:
            self._in_flight.begin()
            try:
                outcome = await self._carry_out(method, metadata, request, context)
                if isinstance(outcome, wire.Refusal):
                    trailers = (*_trailers(context), *outcome.trailers)
                    await context.abort(outcome.code, outcome.text, trailers)
                return outcome
            finally:
                self._in_flight.end()

        # Without a deserialiser the request comes as the bytes that were sent: the same ones with every attempt. A
        # guard's answer is bytes too: those that it has written down.
        return grpc.unary_unary_rpc_method_handler(answer)

    async def _carry_out(self, method: _Method, metadata: Pairs, request: bytes, context: Context) -> object:
        step: StepContext | None = None
        try:
            step = self._step(metadata, context)
            returned = await self._run(method, step, request, context)
        except Rejected as no:
            return wire.rejected(no, participant=self._participant)
        except TryLater as later:
            return wire.not_now(later)
        except MalformedStepError as problem:
            log.warning("a call of %s was refused: %s", method.name, problem)
            return wire.not_readable(str(problem))
        except KeyInUseError as problem:
            log.warning("a call of %s was refused: %s", method.name, problem)
            return wire.key_in_use(str(problem))
        except grpc.aio.AbortError:
            raise
        except Exception as fault:
            log.exception("the handler of %s raised %s%s", method.name, type(fault).__name__, _named(step))
            return wire.handler_raised(method.name, fault)
        return _answered(method, step, returned, context)

    async def _run(self, method: _Method, step: StepContext | None, request: bytes, context: Context) -> object:
        if step is None:
            return await method.behaviour(_parsed(method, request), context)
        await self._keys.begin(step, method.name, request)
        step.state.served = ServedCall(
            participant=self._participant, method=method.name, request=request, threaded=False
        )
        try:
            return await _run_step(method, step, _parsed(method, request), context)
        finally:
            self._keys.end(step)

    def _step(self, metadata: Pairs, context: Context) -> StepContext | None:
        try:
            step = step_of(metadata, time_remaining=context.time_remaining)
        except NotInStep as problem:
            raise MalformedStepError(str(problem)) from problem
        if step is not None and 0 < self._capacity < self._in_flight.count:
            raise TryLater(f"{self._participant} is full: {self._capacity} at once is all it takes")
        return step


class MalformedStepError(Exception):
    """The call claims to be a step, but its metadata or its request can't be read; the handler must not run."""


def _parsed(method: _Method, request: bytes) -> Message:
    try:
        return method.parse(request)
    except DecodeError as problem:
        raise MalformedStepError(
            f"the request's bytes don't parse as what {method.name} takes: "
            "the coordinator and this participant have different protos"
        ) from problem


async def _run_step(method: _Method, step: StepContext, request: Message, context: Context) -> object:
    """Run a handler, and let the guard that it opened decide how the call ends."""
    returned: object = None
    fault: BaseException | None = None
    try:
        returned = await _run_handler(method.behaviour, step, request, context)
    except BaseException as raised:  # noqa: BLE001 - everything is raised again, below
        fault = raised
    guard = cast("Guard | None", step.state.guard)
    if guard is not None and not isinstance(fault, asyncio.CancelledError) and guard.verdict is not None:
        return guard.verdict
    if guard is not None and fault is None and isinstance(returned, method.response) and _code(context) == 0:
        return await _to_the_end(guard.returned(returned, abort_reason=step.state.abort_reason))
    if guard is not None:
        verdict = await _to_the_end(guard.raised(fault or RuntimeError("the handler answered without a response")))
        if verdict is not None:
            return verdict
    if fault is not None:
        raise fault
    return returned


async def _run_handler(behaviour: Behaviour, step: StepContext, request: Message, context: Context) -> object:
    """Run a handler with its step and the caller's trace as the current ones."""
    token, trace = enter(step), _enter_trace(step)
    try:
        return await behaviour(request, context)
    finally:
        if trace is not None:
            telemetry_context.detach(trace)
        leave(step, token)


async def _to_the_end(deciding: Coroutine[Any, Any, T]) -> T:
    """What a guard decides, which runs to its end also when the caller is gone: half a commit is none."""
    task = asyncio.create_task(deciding, name="amends-guard")
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is not None:
            log.warning("nobody hears of it any more: %s", task.exception(), exc_info=task.exception())
        raise


def _answered(method: _Method, step: StepContext | None, returned: object, context: Context) -> object:
    """What is sent: bytes, or a refusal."""
    if isinstance(returned, wire.Refusal):
        return returned
    if _code(context) != 0:
        return b""  # set by the handler in gRPC's own way: gRPC sends that code and drops what was returned
    abort_reason = step.state.abort_reason if step is not None else None
    if isinstance(returned, Answer):
        response, abort_reason = returned.response, returned.abort_reason
    elif isinstance(returned, method.response):
        response = returned.SerializeToString()
    else:
        refusal = wire.wrong_response(method.name, expected=method.response.DESCRIPTOR.full_name, got=returned)
        log.error("%s: %s%s", place_of(method.behaviour), refusal.text, _named(step))
        return refusal
    if abort_reason is not None:
        context.set_trailing_metadata((*_trailers(context), (wire.ABORT_TRAILER, abort_reason)))
    return response


def _enter_trace(step: StepContext) -> Token[Any] | None:  # Any: what a context of OpenTelemetry is, is its business
    """Makes the caller's trace context the current one, if there is one; answers what `detach` takes."""
    if step.traceparent is None:
        return None
    carrier = {"traceparent": step.traceparent}
    if step.tracestate is not None:
        carrier["tracestate"] = step.tracestate
    return telemetry_context.attach(_propagator.extract(carrier))


def _pairs(metadata: object) -> Pairs:
    # The stubs say grpc.aio.Metadata; on a server it is a tuple of pairs.
    return cast("Pairs", metadata or ())


def _trailers(context: Context) -> wire.Trailers:
    # The stubs say grpc.aio.Metadata; on a server it is what was set, or nothing.
    return tuple(cast("Iterable[tuple[str, str | bytes]]", context.trailing_metadata() or ()))


def _code(context: Context) -> int:
    # The stubs say grpc.StatusCode; on a server it is a number, and 0 until a handler sets one.
    code = cast("object", context.code())
    return int(code.value[0]) if isinstance(code, grpc.StatusCode) else int(cast("int", code) or 0)


def _named(step: StepContext | None) -> str:
    return f" (key {step.key}, attempt {step.attempt})" if step else ""
