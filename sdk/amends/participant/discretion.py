"""Keeps to itself what an exception says that leaves an interceptor or a stream, and sends refusals as such.

gRPC's servers send the text of every exception to the caller, and no answer at all (the caller waits for its deadline)
where something is raised that is none, as refusals are. How unary handlers end is dealt with in `step_calls`; this
is for everything around them.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

import grpc

from amends.participant import wire
from amends.participant.refusals import Rejected, TryLater, refusal_in
from amends.participant.step_calls import ENDS_MORE_THAN_A_CALL, log

if TYPE_CHECKING:
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]
    Continuation: TypeAlias = Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]

PASSED_ON = (*ENDS_MORE_THAN_A_CALL, grpc.aio.BaseError)  # what gRPC raises itself is its own business


class Discretion(grpc.aio.ServerInterceptor):
    """Stands before all interceptors of a server.

    Args:
        participant: the domain of refusals.
    """

    def __init__(self, participant: str) -> None:
        self._participant = participant

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """The handler that the others agree on, or one that says that they could not."""
        method = handler_call_details.method.removeprefix("/")
        try:
            handler = await continuation(handler_call_details)
        except ENDS_MORE_THAN_A_CALL:
            raise
        except BaseException as fault:  # noqa: BLE001 - not all that libraries raise to get out is an Exception
            refusal = _refusal(fault, method, self._participant)
            return grpc.unary_unary_rpc_method_handler(_Refusing(refusal).refuse)
        return None if handler is None else discreet(handler, method, participant=self._participant)


class _Refusing:
    """Answers every call with the same refusal."""

    def __init__(self, refusal: wire.Refusal) -> None:
        self._refusal = refusal

    async def refuse(self, _: bytes, context: Context) -> None:
        await context.abort(self._refusal.code, self._refusal.text, self._refusal.trailers)


def discreet(handler: Handler, method: str, *, participant: str) -> Handler:
    """The same handler, which keeps to itself what it raises. One that is a plain function is left as it is."""
    behaviour = _behaviour(handler)

    async def send(fault: BaseException, context: Context) -> NoReturn:
        refusal = _refusal(fault, method, participant)
        await context.abort(refusal.code, refusal.text, (*_trailers(context), *refusal.trailers))

    async def answer(request: object, context: Context) -> object:
        try:
            return await behaviour(request, context)
        except PASSED_ON:
            raise
        except BaseException as fault:  # noqa: BLE001 - see above
            await send(fault, context)

    async def stream(request: object, context: Context) -> AsyncIterator[object]:
        try:
            async for response in behaviour(request, context):
                yield response
        except PASSED_ON:
            raise
        except BaseException as fault:  # noqa: BLE001 - see above
            await send(fault, context)

    if inspect.isasyncgenfunction(behaviour):
        return _with(handler, stream)
    return _with(handler, answer) if inspect.iscoroutinefunction(behaviour) else handler


def discreet_in_thread(handler: Handler, method: str, *, participant: str) -> Handler:
    """The same for a handler of a synchronous server."""
    behaviour = _behaviour(handler)

    def send(fault: BaseException, context: grpc.ServicerContext) -> NoReturn:
        if type(fault) is Exception and not fault.args:
            raise fault  # so gRPC's own abort gets out
        refusal = _refusal(fault, method, participant)
        context.set_trailing_metadata((*_trailers(context), *refusal.trailers))
        context.abort(refusal.code, refusal.text)

    def answer(request: object, context: grpc.ServicerContext) -> object:
        try:
            return behaviour(request, context)
        except BaseException as fault:  # noqa: BLE001 - see above
            send(fault, context)

    def stream(request: object, context: grpc.ServicerContext) -> Iterator[object]:
        try:
            yield from behaviour(request, context)
        except GeneratorExit:
            raise
        except BaseException as fault:  # noqa: BLE001 - see above
            send(fault, context)

    return _with(handler, stream if handler.response_streaming else answer)


def _refusal(raised: BaseException, method: str, participant: str) -> wire.Refusal:
    match refusal_in(raised):
        case Rejected() as no:
            return wire.rejected(no, participant=participant)
        case TryLater() as later:
            return wire.not_now(later)
        case fault:
            log.error("a stream or an interceptor of %s raised %s", method, type(fault).__name__, exc_info=fault)
            return wire.surroundings_raised(method, fault)


def _behaviour(handler: Handler) -> Callable[..., Any]:  # Any: what it answers depends on its kind
    found = (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
    return next(behaviour for behaviour in found if behaviour is not None)


def _with(handler: Handler, behaviour: Callable[..., Any]) -> Handler:
    """A handler of the same kind that behaves so."""
    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[handler.request_streaming, handler.response_streaming]
    return make(
        behaviour,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


def _trailers(context: Context | grpc.ServicerContext) -> wire.Trailers:
    # The stubs say grpc.aio.Metadata, or a mapping; on a server it is what was set, or nothing.
    return tuple(cast("wire.Trailers", context.trailing_metadata() or ()))
