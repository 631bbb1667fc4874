"""Puts servicers on a server: bytes in, bytes out, every error told by the one table, what isn't built answers NOT_YET.

Requests are parsed here and not by gRPC, because gRPC would answer bytes that don't parse with an error that names none
of our reasons, and an exception's text with UNKNOWN.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from amends_coordinator.definitions.errors import Fault
from amends_coordinator.grpc_api.errors import NotYetError, reason_of, status_told, to_status
from amends_coordinator.grpc_api.validation import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from typing import Never

    from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
    from google.rpc import status_pb2  # type: ignore[import-untyped]  # ships no types

    from amends_coordinator.grpc_api.gate import Gate
    from amends_coordinator.ports.telemetry import Telemetry

Request = TypeVar("Request", bound=Message)

# Any: one wrapper serves the requests and responses of all methods.
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Method: TypeAlias = "Callable[[Any, Context], Awaitable[Message]]"
Streaming: TypeAlias = "Callable[[Any, Context], AsyncGenerator[Message]]"


def service_handler(service: ServiceDescriptor, servicer: object, edge: Edge) -> grpc.GenericRpcHandler:
    """The handler of a service. Methods that `servicer` has are carried out, all others answer UNIMPLEMENTED.

    Args:
        service: the service's generated descriptor.
        servicer: has methods named like the service's, each taking the request and gRPC's context: coroutines, or
            asynchronous generators where the service streams.
        edge: what stands around every request. Its gate counts no streams: they end when the engine stops, and one
            whose client doesn't read must not hold that up.

    Raises:
        TypeError: the servicer has a method that the service doesn't.
    """
    known = {method.name for method in service.methods}
    if strange := sorted(name for name in dir(servicer) if name[:1].isupper() and name not in known):
        raise TypeError(f"{type(servicer).__name__} has {', '.join(strange)}, which {service.full_name} has not")
    handlers = {method.name: _handler(service, method, servicer, edge) for method in service.methods}
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


@dataclass(frozen=True, slots=True)
class Edge:
    """What stands around every request: who lets it in, and who hears of it if it ends with an error."""

    gate: Gate
    telemetry: Telemetry

    def refusal(self, error: Exception, *, method: str) -> status_pb2.Status:
        """What a client is told of an error that ends a request, which is counted."""
        self.telemetry.request_refused(method, reason_of(error).lower())
        return status_told(error, method=method)

    async def refuse(self, context: Context, error: Exception, *, method: str) -> Never:
        """End a call with an error."""
        await context.abort_with_status(to_status(self.refusal(error, method=method)))
        raise AssertionError("abort_with_status always raises")


def _handler(
    service: ServiceDescriptor, method: MethodDescriptor, servicer: object, edge: Edge
) -> grpc.RpcMethodHandler[bytes, bytes]:
    name = f"{service.full_name}/{method.name}"
    carried_out = getattr(servicer, method.name, None)
    if method.server_streaming:
        handler = _not_yet(name, edge) if carried_out is None else _stream(name, carried_out, method, edge)
        return grpc.unary_stream_rpc_method_handler(handler)
    handler = _not_yet(name, edge) if carried_out is None else _unary(name, carried_out, method, edge)
    return grpc.unary_unary_rpc_method_handler(handler)


# Any below: grpcio's stubs describe handlers of the synchronous server only, and the aio server takes coroutines.
def _unary(name: str, carry_out: Method, method: MethodDescriptor, edge: Edge) -> Any:
    request_class = GetMessageClass(method.input_type)

    async def handle(data: bytes, context: Context) -> bytes:
        try:
            edge.gate.enter()
            try:
                return (await carry_out(parsed(request_class, data), context)).SerializeToString()
            finally:
                edge.gate.leave()
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # noqa: BLE001  # the edge: whatever it is, the client gets a status with a reason
            await edge.refuse(context, error, method=name)

    return handle


def _stream(name: str, carry_out: Streaming, method: MethodDescriptor, edge: Edge) -> Any:
    request_class = GetMessageClass(method.input_type)

    async def handle(data: bytes, context: Context) -> None:
        try:
            edge.gate.require_open()
            async with aclosing(carry_out(parsed(request_class, data), context)) as messages:
                async for message in messages:
                    # Waits while the client doesn't read: what comes meanwhile is the servicer's to drop or to keep.
                    await context.write(message.SerializeToString())
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # noqa: BLE001  # the edge, as above
            await edge.refuse(context, error, method=name)

    return handle


def _not_yet(name: str, edge: Edge) -> Any:
    async def handle(_: bytes, context: Context) -> bytes:
        await edge.refuse(context, NotYetError(name), method=name)

    return handle


def parsed(request_class: type[Request], data: bytes) -> Request:
    """A request as it was sent.

    Raises:
        InvalidRequestError: the bytes are of no such message.
    """
    try:
        return request_class.FromString(data)
    except DecodeError:
        wanted = request_class.DESCRIPTOR.full_name
        raise InvalidRequestError(
            (Fault("", f"the request's bytes don't parse as {wanted}; send that message"),)
        ) from None
