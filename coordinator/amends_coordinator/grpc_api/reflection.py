"""Server reflection, v1 and v1alpha: what lets grpcurl call us without a proto and print every payload as JSON.

The library's own servicer serves one pool of this process' types, fixed at the start, and v1alpha only. Ours answers
from what is known at the moment of the question: the public API with its error details, then the participants' types,
then those of the definitions; so a payload in an `Any` is readable whoever sent it, also when its participant is gone.
A type that nobody knows is answered with NOT_FOUND: the reader shows that payload as bytes, and all others as JSON.

Only services that answer here are listed; those of participants can be described. The messages of both versions of the
protocol are the same on the wire, so one implementation answers at both paths.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

from amends_coordinator.definitions.type_index import FileIndex
from amends_coordinator.ports.ledger import LedgerError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence

    from google.protobuf.descriptor import FileDescriptor

    from amends_coordinator.definitions.type_index import TypeIndex
    from amends_coordinator.grpc_api.known_types import KnownTypes

    # Any: requests and responses pass as bytes, and the library's stubs say otherwise.
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

# Any: grpcio-reflection ships no types.
_messages: Any = importlib.import_module("grpc_reflection.v1alpha.reflection_pb2")

VERSIONS = ("v1", "v1alpha")
SERVICES = tuple(f"grpc.reflection.{version}.ServerReflection" for version in VERSIONS)


def own_files(modules: Iterable[FileDescriptor]) -> FileIndex:
    """The files of this process that are served: these, what they import, and reflection's own in both versions."""
    alpha = FileDescriptorProto.FromString(_messages.DESCRIPTOR.serialized_pb)
    found: dict[str, FileDescriptorProto] = {}
    for module in modules:
        _collect(module, found)
    return FileIndex((*found.values(), alpha, _first_version(alpha)))


class Reflection:
    """Answers questions about types.

    Args:
        services: full names of the services that answer on this server.
        types: what is known, at the moment of each question.
    """

    def __init__(self, services: Sequence[str], types: KnownTypes) -> None:
        self._services = sorted((*services, *SERVICES))
        self._types = types

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """What is put on the server: one handler for each version."""
        # Any: grpcio's stubs describe the handlers of the synchronous server only.
        answer: Any = self._answer_all
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(answer)
        return [
            grpc.method_handlers_generic_handler(service, {"ServerReflectionInfo": handler}) for service in SERVICES
        ]

    async def _answer_all(self, questions: AsyncIterator[bytes], context: Context) -> AsyncGenerator[bytes]:
        async for question in questions:
            try:
                asked = _messages.ServerReflectionRequest.FromString(question)
            except DecodeError:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "this is no ServerReflectionRequest")
            answer = await self._answer(asked)
            yield answer.SerializeToString()

    async def _answer(self, asked: Any) -> Any:  # Any: messages without types, see above
        answer = _messages.ServerReflectionResponse(valid_host=asked.host, original_request=asked)
        kind = asked.WhichOneof("message_request")
        if kind == "list_services":
            answer.list_services_response.SetInParent()
            for name in self._services:
                answer.list_services_response.service.add(name=name)
            return answer
        if kind is None:
            return _refused(
                answer, grpc.StatusCode.INVALID_ARGUMENT, "ask for a file, a symbol, an extension or a list"
            )
        try:
            found = self._look(asked, kind, self._types.at_hand(), answer)
            if not found:
                found = self._look(asked, kind, await self._types.with_definitions(), answer)
        except LedgerError as error:
            return _refused(answer, grpc.StatusCode.UNAVAILABLE, f"the definitions can't be read just now: {error}")
        if not found:
            return _refused(answer, grpc.StatusCode.NOT_FOUND, f"nothing that is known here is the {kind} asked for")
        return answer

    def _look(self, asked: Any, kind: str, types: TypeIndex, answer: Any) -> bool:  # Any: as above
        """Fill in the answer; whether there is one."""
        if kind == "all_extension_numbers_of_type":
            extendee = asked.all_extension_numbers_of_type
            answer.all_extension_numbers_response.base_type_name = extendee
            # Empty is an answer for a type that is known: readers that got an error took the type itself for unknown.
            answer.all_extension_numbers_response.extension_number[:] = types.extension_numbers(extendee)
            return types.file_of_symbol(extendee) is not None
        if kind == "file_by_filename":
            file = types.file(asked.file_by_filename)
        elif kind == "file_containing_symbol":
            file = types.file_of_symbol(asked.file_containing_symbol)
        else:
            wanted = asked.file_containing_extension
            file = types.file_of_extension(wanted.containing_type, wanted.extension_number)
        if file is None:
            return False
        answer.file_descriptor_response.file_descriptor_proto.extend(map(types.serialised, types.with_imports(file)))
        return True


def _refused(answer: Any, code: grpc.StatusCode, text: str) -> Any:  # Any: messages without types, see above
    answer.error_response.error_code, answer.error_response.error_message = code.value[0], text
    return answer


def _collect(file: FileDescriptor, found: dict[str, FileDescriptorProto]) -> None:
    if file.name not in found:
        found[file.name] = FileDescriptorProto.FromString(file.serialized_pb)
        for dependency in file.dependencies:
            _collect(dependency, found)


def _first_version(alpha: FileDescriptorProto) -> FileDescriptorProto:
    """The file of v1, which the library doesn't ship: v1alpha's under another package."""
    file = FileDescriptorProto()
    file.CopyFrom(alpha)
    file.name, file.package = alpha.name.replace("v1alpha", "v1"), "grpc.reflection.v1"
    for message in file.message_type:
        for field in message.field:
            field.type_name = field.type_name.replace(alpha.package, file.package)
    for service in file.service:
        for method in service.method:
            method.input_type = method.input_type.replace(alpha.package, file.package)
            method.output_type = method.output_type.replace(alpha.package, file.package)
    return file
