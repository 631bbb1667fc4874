"""Stands between gRPC and the handlers: gives them their step, and turns how they end into what the coordinator reads.

A handler may end in these ways, and only the first four prove anything (semantics: what an answer proves):

* it returns its response: OK, with `amends-abort-bin` if it asked for the saga to be aborted;
* it raises `Rejected`: one of the refusal codes, with `ErrorInfo`;
* it raises `TryLater`: `UNAVAILABLE` with `amends-executed: no`;
* it aborts through gRPC's own context: passed on as it is;
* it raises anything else: logged here with its traceback, sent as `UNKNOWN` without its text;
* it returns nothing, or a message of another type: logged, sent as `INTERNAL`;
* it is cancelled, because the caller is gone or its deadline is over: nobody hears an answer.

Calls that no coordinator made have no step; they get the same answers without it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import grpc
from google.protobuf.message import Message
from opentelemetry import context as telemetry_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from amends.participant import wire
from amends.participant.context import StepContext, is_step, step_context
from amends.participant.in_flight import CallsInFlight
from amends.participant.refusals import NotInStep, Rejected, TryLater

log = logging.getLogger("amends.participant")

# The stubs make requests and responses type variables of each call; here they are whatever the handler takes. At run
# time these classes take no parameters, so the names exist for checkers only.
if TYPE_CHECKING:
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
    Behaviour: TypeAlias = Callable[[Any, Context], Awaitable[object]]
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]

_propagator = TraceContextTextMapPropagator()


class StepCalls(grpc.aio.ServerInterceptor):
    """Wraps the unary handlers of one participant's services.

    Args:
        participant: its name, the domain of its refusals.
        responses: the response class of each method, by path ("/package.Service/Method"); other paths are left alone.
        capacity: how many steps it takes at once; 0 for any number.
        in_flight: counts the calls.
    """

    def __init__(
        self, participant: str, *, responses: Mapping[str, type[Message]], capacity: int, in_flight: CallsInFlight
    ) -> None:
        self._participant, self._capacity = participant, capacity
        self._responses, self._in_flight = responses, in_flight
        self._wrapped: dict[str, Handler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The handler that gRPC is to run."""
        path = handler_call_details.method
        wrapped = self._wrapped.get(path)
        if wrapped is not None:
            return wrapped
        handler = await continuation(handler_call_details)
        response = self._responses.get(path)
        if handler is None or response is None or handler.unary_unary is None:
            return handler
        wrapped = self._wrap(path.removeprefix("/"), handler, response)
        self._wrapped[path] = wrapped
        return wrapped

    def _wrap(self, method: str, handler: Handler, response: type[Message]) -> Handler:
        # The stubs describe synchronous handlers; `services.read_servicer` made sure that this one is a coroutine.
        behaviour = cast("Behaviour", handler.unary_unary)

        async def answer(request: Message, context: Context) -> object:
            with self._in_flight.one():
                outcome = await self._carry_out(method, behaviour, response, request, context)
                if isinstance(outcome, wire.Refusal):
                    trailers = (*_trailers(context), *outcome.trailers)
                    await context.abort(outcome.code, outcome.text, trailers)
                return outcome

        return grpc.unary_unary_rpc_method_handler(
            answer, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
        )

    async def _carry_out(
        self, method: str, behaviour: Behaviour, response: type[Message], request: Message, context: Context
    ) -> object:
        step: StepContext | None = None
        try:
            step = self._step(context)
            with step_context(step) if step else contextlib.nullcontext(), _trace(step):
                returned = await behaviour(request, context)
        except Rejected as no:
            return wire.rejected(no, participant=self._participant)
        except TryLater as later:
            return wire.not_now(later)
        except MalformedStepError as problem:
            log.warning("a call of %s was refused: %s", method, problem)
            return wire.not_readable(str(problem))
        except grpc.aio.AbortError:
            raise
        except Exception as fault:
            log.exception("the handler of %s raised %s%s", method, type(fault).__name__, _named(step))
            return wire.handler_raised(method, fault)
        return self._answered(method, step, response, returned, context)

    def _step(self, context: Context) -> StepContext | None:
        metadata = _metadata(context)
        if not is_step(metadata):
            return None
        try:
            step = StepContext.from_metadata(metadata, time_remaining=context.time_remaining)
        except NotInStep as problem:
            raise MalformedStepError(str(problem)) from problem
        if 0 < self._capacity < self._in_flight.count:
            raise TryLater(f"{self._participant} is full: {self._capacity} at once is all it takes")
        return step

    def _answered(
        self, method: str, step: StepContext | None, response: type[Message], returned: object, context: Context
    ) -> object:
        if _code(context) != 0:
            return returned  # set by the handler in gRPC's own way: gRPC sends that code and drops what was returned
        if not isinstance(returned, response):
            refusal = wire.wrong_response(method, expected=response.DESCRIPTOR.full_name, got=returned)
            log.error("%s%s", refusal.text, _named(step))
            return refusal
        if step is not None and step.state.abort_reason is not None:
            context.set_trailing_metadata((*_trailers(context), (wire.ABORT_TRAILER, step.state.abort_reason)))
        return returned


class MalformedStepError(Exception):
    """The call claims to be a step, but its metadata can't be read; the handler must not run."""


@contextlib.contextmanager
def _trace(step: StepContext | None) -> Generator[None]:
    """Makes the caller's trace context the current one for the block."""
    if step is None or step.traceparent is None:
        yield
        return
    carrier = {"traceparent": step.traceparent}
    if step.tracestate is not None:
        carrier["tracestate"] = step.tracestate
    token = telemetry_context.attach(_propagator.extract(carrier))
    try:
        yield
    finally:
        telemetry_context.detach(token)


def _metadata(context: Context) -> Iterable[tuple[str, str | bytes]]:
    # The stubs say grpc.aio.Metadata; on a server it is a tuple of pairs.
    return cast("Iterable[tuple[str, str | bytes]]", context.invocation_metadata() or ())


def _trailers(context: Context) -> wire.Trailers:
    # The stubs say grpc.aio.Metadata; on a server it is what was set, or nothing.
    return tuple(cast("Iterable[tuple[str, str | bytes]]", context.trailing_metadata() or ()))


def _code(context: Context) -> int:
    # The stubs say grpc.StatusCode; on a server it is a number, and 0 until a handler sets one.
    code = cast("object", context.code())
    return int(code.value[0]) if isinstance(code, grpc.StatusCode) else int(cast("int", code) or 0)


def _named(step: StepContext | None) -> str:
    return f" (key {step.key}, attempt {step.attempt})" if step else ""
