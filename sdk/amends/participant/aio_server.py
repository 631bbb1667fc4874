"""Calls that come through gRPC's asyncio server: unary methods as steps (`step_calls`), streams as they are.

The handlers that are made here give and take messages, as the team's own do, so that interceptors around them can read
what passes; the bytes that came are kept beside it.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import grpc
from google.protobuf.message import Message

from amends.participant import wire
from amends.participant.arrived_call import Call, Pairs
from amends.participant.context import StepContext, by_key
from amends.participant.discretion import discreet
from amends.participant.guards import Verdict
from amends.participant.handler_contexts import ContextInThread
from amends.participant.in_flight import CallsInFlight
from amends.participant.key_memory import wait_on_loop
from amends.participant.served_method import GRPCS_OWN, ReceivedRequest, ServedMethod, served_method
from amends.participant.step_calls import StepCalls, log
from amends.participant.threads import HandlerThreads

# The stubs make requests and responses type variables of each call; here they are whatever the handler takes. At run
# time these classes take no parameters, so the names exist for checkers only.
if TYPE_CHECKING:
    from amends.participant.discretion import Continuation
    from amends.participant.services import ServedService

    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]


class ServedCalls(grpc.GenericRpcHandler):
    """The services of one participant as an asyncio server is to serve them.

    It takes the place of the services' own handlers, and is no interceptor, because gRPC hands it the metadata of each
    call, which reading it again through the handler's context costs as much as all the rest of this.

    Args:
        calls: how they go.
        services: the services.
        threads: for handlers that are no coroutines.
    """

    def __init__(self, calls: StepCalls, *, services: Iterable[ServedService], threads: HandlerThreads) -> None:
        self._calls, self._threads = calls, threads
        self._services = tuple(services)
        self._methods: dict[str, ServedMethod] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        """The handler of one call."""
        path = handler_call_details.method
        method = self._methods.get(path)
        if method is None:
            service = next((each for each in self._services if path.startswith(f"/{each.name}/")), None)
            if service is None:
                return None
            handler = service.handlers.service(handler_call_details)
            if handler is None:
                return self._unknown(path, service)
            if handler.unary_unary is None:
                return discreet(handler, path.removeprefix("/"), participant=self._calls.participant)
            method = self._methods[path] = served_method(path, handler.unary_unary)
        return handler_of(method, handler_call_details.invocation_metadata, calls=self._calls, threads=self._threads)

    def _unknown(self, path: str, service: ServedService) -> Handler:
        """Says what is wrong with a call of a method that a service of ours doesn't have, in this process' stubs."""
        known = [str(method.name) for method in service.descriptor.methods]
        refusal = wire.unknown_method(path.removeprefix("/"), participant=self._calls.participant, known=known)

        async def refuse(_: bytes, context: Context) -> None:
            log.warning("%s", refusal.text)
            await context.abort(refusal.code, refusal.text)

        return grpc.unary_unary_rpc_method_handler(refuse)


def handler_of(method: ServedMethod, metadata: object, *, calls: StepCalls, threads: HandlerThreads) -> Handler:
    """What answers one call of an asyncio server."""
    request = ReceivedRequest(method)
    # The stubs say grpc.aio.Metadata; on a server it is a tuple of pairs, unless an interceptor has made it anew.
    said = by_key(cast("Pairs", metadata or ()))

    async def answer(message: Message, context: Context) -> Message:
        place = InThread(threads, ContextInThread(context)) if method.plain else OnLoop(context)
        verdict = await calls.answer(Call(method, said, request, message, place))
        # The stubs say grpc.aio.Metadata; on a server it is what was set, or nothing.
        trailers = tuple(cast("Pairs", place.context.trailing_metadata() or ()))
        if isinstance(verdict, wire.Refusal):
            return await _refuse(verdict, method, trailers=trailers, context=context)
        if verdict.abort_reason is not None:
            trailers = (*trailers, (wire.ABORT_TRAILER, verdict.abort_reason))
        if trailers:
            context.set_trailing_metadata(trailers)
        return method.response.FromString(verdict.response)

    return grpc.unary_unary_rpc_method_handler(
        answer, request_deserializer=request.read, response_serializer=method.response.SerializeToString
    )


class StepInterceptor(grpc.aio.ServerInterceptor):
    """Makes steps of the unary methods of an asyncio server of yours, as `ParticipantServer` does with its own.

        server = grpc.aio.server(interceptors=[Authenticate(), StepInterceptor("payments")])

    Put it last: interceptors after it take part in the handler's work. Services of gRPC's own, such as health, pass.
    Announce what the server serves with an `Announcer`.

    Args:
        participant: the name that it is announced by, the domain of its refusals.
        capacity: how many steps are carried out at once; 0 for any number. Announce the same.
        threads: how many plain handlers run at once; see `ParticipantServer`.
    """

    def __init__(self, participant: str, *, capacity: int = 0, threads: int = 16) -> None:
        self._in_flight = CallsInFlight()
        self._calls = StepCalls(participant, capacity=capacity, in_flight=self._in_flight)
        self._threads = HandlerThreads(threads)

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """The handler of one call."""
        handler = await continuation(handler_call_details)
        path = handler_call_details.method
        if handler is None or path.startswith(GRPCS_OWN):
            return handler
        if handler.unary_unary is not None:
            with suppress(KeyError):  # no imported module describes the method, so it is no coordinator that calls it
                method = served_method(path, handler.unary_unary)
                metadata = handler_call_details.invocation_metadata
                return handler_of(method, metadata, calls=self._calls, threads=self._threads)
        return discreet(handler, path.removeprefix("/"), participant=self._calls.participant)

    async def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no handler runs, at most so long; whether that was reached.

        A server's `stop()` waits neither for a thread whose caller is gone nor for what a cancelled handler cleans up.
        """
        return await self._in_flight.wait_idle(timeout_s)


class OnLoop:
    """Where coroutines are carried out: on the loop that the call came on."""

    def __init__(self, context: Context) -> None:
        self.context = context

    async def wait(self, other: Future[None], step: StepContext) -> None:
        """See `Place`."""
        await wait_on_loop(other, step)

    def run(self, course: Coroutine[Any, Any, Verdict]) -> Coroutine[Any, Any, Verdict]:
        """See `Place`."""
        return course


class InThread:
    """Where plain handlers are carried out: in a thread, which is taken when nothing is in the call's way any more."""

    def __init__(self, threads: HandlerThreads, context: ContextInThread) -> None:
        self._threads, self.context = threads, context

    async def wait(self, other: Future[None], step: StepContext) -> None:
        """See `Place`."""
        await wait_on_loop(other, step)

    async def run(self, course: Coroutine[Any, Any, Verdict]) -> Verdict:
        """See `Place`."""
        try:
            return await self._threads.run(course, abandoned=self.context.end)
        finally:
            self.context.end()


async def _refuse(refusal: wire.Refusal, method: ServedMethod, *, trailers: wire.Trailers, context: Context) -> Message:
    """Ends the call with another code than OK, unless the handler has done so already."""
    try:
        await context.abort(refusal.code, refusal.text, (*trailers, *refusal.trailers))
    except grpc.aio.UsageError:
        return method.response()  # the handler aborted the call itself, and gRPC has sent that already
