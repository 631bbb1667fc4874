"""Calls that come through gRPC's synchronous server, each in a thread: unary methods as steps (`step_calls`)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import grpc
from google.protobuf.message import Message

from amends.participant import wire
from amends.participant.arrived_call import Call, Pairs
from amends.participant.context import StepContext, by_key
from amends.participant.discretion import discreet_in_thread
from amends.participant.guards import Verdict
from amends.participant.handler_contexts import ContextOfSyncServer
from amends.participant.in_flight import CallsInFlight
from amends.participant.key_memory import wait_in_thread
from amends.participant.served_method import GRPCS_OWN, ReceivedRequest, ServedMethod, served_method
from amends.participant.step_calls import StepCalls
from amends.participant.threads import at_once

# Any: messages of every method; at run time this class takes no parameters.
if TYPE_CHECKING:
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]
    Continuation: TypeAlias = Callable[[grpc.HandlerCallDetails], Handler | None]


class SyncStepInterceptor(grpc.ServerInterceptor):
    """Makes steps of the unary methods of a synchronous server of yours, as `ParticipantServer` does with its own.

        server = grpc.server(ThreadPoolExecutor(16), interceptors=[Authenticate(), SyncStepInterceptor("payments")])

    Put it last: interceptors after it take part in the handler's work. Services of gRPC's own, such as health, pass.
    Announce what the server serves with a `SyncAnnouncer`.

    Args:
        participant: the name that it is announced by, the domain of its refusals.
        capacity: how many steps are carried out at once; 0 for any number. Announce as many as the server has threads,
            or less: the others would wait for one, and their time runs.
    """

    def __init__(self, participant: str, *, capacity: int = 0) -> None:
        self._in_flight = CallsInFlight()
        self._calls = StepCalls(participant, capacity=capacity, in_flight=self._in_flight)

    def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """The handler of one call."""
        handler = continuation(handler_call_details)
        path = handler_call_details.method
        if handler is None or path.startswith(GRPCS_OWN):
            return handler
        if handler.unary_unary is not None:
            with suppress(KeyError):  # no imported module describes the method, so it is no coordinator that calls it
                method = served_method(path, handler.unary_unary)
                return self._handler_of(method, handler_call_details.invocation_metadata)
        return discreet_in_thread(handler, path.removeprefix("/"), participant=self._calls.participant)

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no handler runs, at most so long; whether that was reached."""
        return self._in_flight.wait_idle_in_thread(timeout_s)

    def _handler_of(self, method: ServedMethod, metadata: object) -> Handler:
        request = ReceivedRequest(method)
        said = by_key(cast("Pairs", metadata or ()))

        def answer(message: Message, context: grpc.ServicerContext) -> Message:
            place = OwnThread(ContextOfSyncServer(context))
            call = Call(method, said, request, message, place)
            return _send(at_once(self._calls.answer(call)), method, said=place.context, context=context)

        return grpc.unary_unary_rpc_method_handler(
            answer, request_deserializer=request.read, response_serializer=method.response.SerializeToString
        )


class OwnThread:
    """Where all is carried out: in the thread that the call came in, which may wait."""

    def __init__(self, context: ContextOfSyncServer) -> None:
        self.context = context

    async def wait(self, other: Future[None], step: StepContext) -> None:
        """See `Place`."""
        wait_in_thread(other, step)

    def run(self, course: Coroutine[Any, Any, Verdict]) -> Coroutine[Any, Any, Verdict]:
        """See `Place`."""
        return course


def _send(
    verdict: Verdict, method: ServedMethod, *, said: ContextOfSyncServer, context: grpc.ServicerContext
) -> Message:
    """Answers with the trailers that the handler set, and ours."""
    ours: wire.Trailers = ()
    if isinstance(verdict, wire.Refusal):
        ours = verdict.trailers
    elif verdict.abort_reason is not None:
        ours = ((wire.ABORT_TRAILER, verdict.abort_reason),)
    context.set_trailing_metadata((*said.trailing_metadata(), *ours))
    if isinstance(verdict, wire.Refusal):
        context.abort(verdict.code, verdict.text)
    return method.response.FromString(verdict.response)
