"""Reads a servicer: which generated services it serves, with which handlers, and the descriptors that describe them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor, ServiceDescriptor

from amends.annotations import unknown_methods
from amends.participant.errors import InvalidParticipantError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedService:
    """One gRPC service of a participant."""

    descriptor: ServiceDescriptor
    handlers: grpc.GenericRpcHandler

    @property
    def name(self) -> str:
        """Its full name, "package.Service"."""
        return str(self.descriptor.full_name)


def read_servicer(servicer: object) -> list[ServedService]:
    """The services that an instance of a subclass of generated ...Servicer classes serves.

    Raises:
        InvalidParticipantError: it serves none, leaves out one of their methods, or an annotation names none of them.
    """
    if servicer is None:
        raise InvalidParticipantError("add() was given None: give it an instance of your servicer class")
    if isinstance(servicer, type):
        raise InvalidParticipantError(
            f"{servicer.__name__} is a class: give add() an instance of it, add({servicer.__name__}(...))"
        )
    served: dict[str, ServedService] = {}
    for base, register in _generated_bases(type(servicer)):
        service = _register(servicer, base, register)
        _check_handlers(servicer, base, service)
        _check_annotations(service)
        served[service.name] = service
    if not served:
        name = type(servicer).__name__
        raise InvalidParticipantError(
            f"{name} has no generated base class: derive it from the ...Servicer class in the _pb2_grpc module of its "
            f"proto, for example class {name}({_base_for(servicer)})"
        )
    return list(served.values())


def descriptors_of(services: Iterable[ServedService]) -> descriptor_pb2.FileDescriptorSet:
    """The files of the services with everything they depend on, each after what it depends on."""
    return files_of(service.descriptor for service in services)


def files_of(services: Iterable[ServiceDescriptor]) -> descriptor_pb2.FileDescriptorSet:
    """The same for services that are described only."""
    files: dict[str, FileDescriptor] = {}
    for service in services:
        _collect(service.file, files)
    return descriptor_pb2.FileDescriptorSet(
        file=[descriptor_pb2.FileDescriptorProto.FromString(file.serialized_pb) for file in files.values()]
    )


Register = Callable[[object, object], None]


class _Recorder:
    """Takes a server's place while generated code registers a servicer, to learn the service's name and handlers."""

    def __init__(self) -> None:
        self.handlers: list[grpc.ServiceRpcHandler] = []

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.ServiceRpcHandler]) -> None:
        self.handlers.extend(handlers)

    def add_registered_method_handlers(self, service_name: str, handlers: Mapping[str, object]) -> None:
        """The same handlers once more, for a server that is not asyncio's."""


def _generated_bases(cls: type) -> Iterator[tuple[type, Register]]:
    """The generated classes that a servicer derives from, each with the function that registers it at a server."""
    for base in inspect.getmro(cls):
        register = getattr(sys.modules.get(base.__module__), f"add_{base.__name__}_to_server", None)
        if callable(register) and getattr(register, "__module__", None) == base.__module__:
            yield base, cast("Register", register)


def _register(servicer: object, base: type, register: Register) -> ServedService:
    recorder = _Recorder()
    register(servicer, recorder)
    handlers = recorder.handlers[0]
    name = handlers.service_name()
    try:
        descriptor = descriptor_pool.Default().FindServiceByName(name)
    except KeyError:
        raise InvalidParticipantError(
            f"{type(servicer).__name__} serves {name}, but no imported _pb2 module describes it: "
            f"import the module generated beside {base.__module__}"
        ) from None
    return ServedService(descriptor=descriptor, handlers=handlers)


def _check_handlers(servicer: object, base: type, service: ServedService) -> None:
    owner, methods = type(servicer).__name__, service.descriptor.methods
    missing = [str(method.name) for method in methods if _is_inherited(servicer, base, str(method.name))]
    if missing:
        raise InvalidParticipantError(
            f"{owner} leaves out {', '.join(missing)} of {service.name}: write "
            f"`async def {missing[0]}(self, request, context)`; to serve less, make a proto with less"
        )


def check_streams(servicer: object, service: ServedService) -> None:
    """Refuses streams in plain functions, each of which would hold a thread for as long as it lasts.

    Raises:
        InvalidParticipantError: the service has one; the text says which.
    """
    for method in service.descriptor.methods:
        if _is_stream(method) and not _is_asynchronous(servicer, method):
            raise InvalidParticipantError(
                f"{place_of(getattr(servicer, str(method.name)))} is a plain function, which only unary methods may "
                f"be: write `async def {method.name}(self, request, context)`"
            )


def place_of(handler: Callable[..., object]) -> str:
    """A handler's name with the file and line where it is written, such as "Theatre.Hold (theatre.py:11)"."""
    function = inspect.unwrap(handler)
    name = getattr(function, "__qualname__", repr(function))
    code = getattr(function, "__code__", None)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def _check_annotations(service: ServedService) -> None:
    copied = descriptor_pb2.ServiceDescriptorProto()
    service.descriptor.CopyToProto(copied)
    # Parsed anew: in what was copied the annotations may be bytes that nobody has read.
    described = descriptor_pb2.ServiceDescriptorProto.FromString(copied.SerializeToString())
    faults = [*unknown_methods(described, service.name)]
    if faults:
        raise InvalidParticipantError(" ".join(faults))


def _base_for(servicer: object) -> str:
    """The generated class that a servicer was most likely meant to derive from: one whose methods it has."""
    for name, module in sorted(sys.modules.items()):
        for base in vars(module).values() if name.endswith("_pb2_grpc") else ():
            if isinstance(base, type) and base.__name__.endswith("Servicer") and base.__module__ == name:
                methods = [method for method in vars(base) if not method.startswith("_")]
                if methods and all(callable(getattr(servicer, method, None)) for method in methods):
                    return f"{name}.{base.__name__}"
    return "payments_pb2_grpc.PaymentsServiceServicer"


def _is_inherited(servicer: object, base: type, method: str) -> bool:
    handler = getattr(servicer, method)
    return getattr(handler, "__func__", handler) is base.__dict__.get(method)


def _is_stream(method: MethodDescriptor) -> bool:
    return bool(method.client_streaming or method.server_streaming)


def _is_asynchronous(servicer: object, method: MethodDescriptor) -> bool:
    handler = inspect.unwrap(getattr(servicer, str(method.name)))
    return inspect.iscoroutinefunction(handler) or (method.server_streaming and inspect.isasyncgenfunction(handler))


def _collect(file: FileDescriptor, files: dict[str, FileDescriptor]) -> None:
    if file.name in files:
        return
    for dependency in file.dependencies:
        _collect(dependency, files)
    files[str(file.name)] = file
