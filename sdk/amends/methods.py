"""Names a participant's method with its types, checked against its descriptor on the spot."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from google.protobuf.message import Message

from amends.errors import DefinitionError
from amends.templates import Template, make_template

if TYPE_CHECKING:
    from types import ModuleType

    from google.protobuf.descriptor import Descriptor, FileDescriptor, MethodDescriptor

P = ParamSpec("P")
Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)


@dataclass(frozen=True, slots=True)
class Call(Generic[Req, Res]):
    """A method together with how its request is built. Made by calling a `Method`; given to a step."""

    method: Method[..., Req, Res]
    template: Template


@dataclass(frozen=True, slots=True)
class Method(Generic[P, Req, Res]):
    """A unary method of a participant. Call it with the fields of its request to say how that is built."""

    full_name: str
    """"package.Service/Method"."""
    descriptor: MethodDescriptor
    request: type[Req]
    response: type[Res]

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[Req, Res]:
        """How this method's request is built.

        Arguments:
            kwargs: fields of the request by name. Each is a reference (`saga.input.x`, `step.response.y`,
                `step.request.z`, `saga.id`, `saga.key` ...), or a literal of the field's type. A field that isn't named
                stays empty; on a compensation or a lookup it is taken from the field of the same name and type in the
                action's response, else in its request. To keep it empty there, give its empty value (`reason=""`).

        Raises:
            DefinitionError: a field is unknown or gets something of another type; the message says what would be right.
        """
        template = make_template(self.request, self.full_name, args, kwargs)
        # ParamSpec has done its work: a call is described by its request and response alone.
        return Call(cast("Method[..., Req, Res]", self), template)

    def __repr__(self) -> str:
        return f"<method {self.full_name}>"


def method(
    # `Any`: the servicer's own class and the context are whatever the stub generator made of them.
    rpc: Callable[[Any, Req, Any], Res | Awaitable[Res]],
    request: Callable[P, Req],
    response: type[Res],
) -> Method[P, Req, Res]:
    """Names a participant's method, so that sagas can call it.

        Reserve = method(InventoryServiceServicer.Reserve, ReserveRequest, ReserveResponse)

    Arguments:
        rpc: the method of the generated servicer class (from the `_pb2_grpc` module), not of your own subclass.
        request: the class of its request.
        response: the class of its response.

    Raises:
        DefinitionError: it isn't a generated servicer's method, it streams, or the types aren't its own.
    """
    found = _find(rpc)
    full_name = f"{found.containing_service.full_name}/{found.name}"
    if found.client_streaming or found.server_streaming:
        raise DefinitionError(f"{full_name} streams: only a method with one request and one response can be a step")
    # `request` is a class: the checkers see it as a callable, which is how the parameters of its constructor are had.
    request_type = cast("type[Req]", request)
    _same(request_type, found.input_type, f"{full_name} takes")
    _same(response, found.output_type, f"{full_name} answers")
    return Method(full_name, found, request_type, response)


def _find(rpc: object) -> MethodDescriptor:
    qualified_name = str(getattr(rpc, "__qualname__", ""))
    module_name = str(getattr(rpc, "__module__", ""))
    servicer, _, name = qualified_name.partition(".")
    if not name or not servicer.endswith("Servicer") or not module_name.endswith("_pb2_grpc"):
        raise DefinitionError(
            f"{qualified_name or rpc!r} of {module_name or 'nowhere'} isn't a generated servicer's method: pass that "
            "of the class in the _pb2_grpc module, for example InventoryServiceServicer.Reserve"
        )
    file = _file_of(importlib.import_module(module_name.removesuffix("_grpc")))
    service = file.services_by_name.get(servicer.removesuffix("Servicer"))
    found = service.methods_by_name.get(name) if service is not None else None
    if found is None:
        raise DefinitionError(
            f"{file.name} has no method {qualified_name}: the generated _pb2 and _pb2_grpc modules don't belong "
            "together; generate both anew"
        )
    return found


def _file_of(module: ModuleType) -> FileDescriptor:
    return cast("FileDescriptor", module.DESCRIPTOR)


def _same(given: object, wanted: Descriptor, what: str) -> None:
    descriptor = getattr(given, "DESCRIPTOR", None)
    name = getattr(descriptor, "full_name", None)
    if not (isinstance(given, type) and issubclass(given, Message)):
        raise DefinitionError(f"{what} {wanted.full_name}: pass that generated class, not {given!r}")
    if name != wanted.full_name:
        raise DefinitionError(f"{what} {wanted.full_name}, not {name}: pass {wanted.name}")


def check_call(given: object, where: str) -> None:
    """Whether what a step, a compensation or a lookup calls is a call: the type checkers see that it is.

    Raises:
        DefinitionError: it is something that is easily given instead.
    """
    if isinstance(given, Call):
        return
    what = "a message" if isinstance(given, Message) else repr(given)
    if isinstance(given, Method):
        what = f"the method {given.full_name} without its request"
    raise DefinitionError(
        f"{where} is given {what}: call a method() with the fields of its request, for example "
        "Reserve(sku=order.input.sku) with Reserve = method(InventoryServiceServicer.Reserve, ReserveRequest, "
        "ReserveResponse)"
    )
