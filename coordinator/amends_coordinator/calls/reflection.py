"""Asks a target what it serves, by server reflection: `grpc.reflection.v1`, and `v1alpha` where there is no other.

Both versions have the same messages but for their package, so those of one serve for both. Each question is a call of
its own, a stream of one message each way: on a longer stream gRPC loses the status of a target that ended it meanwhile.
What a target answers is bounded in time, in files and in bytes, and whatever it answers ends in descriptors or in a
sentence.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc.aio
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

# grpcio-reflection ships no types.
from grpc_reflection.v1alpha import reflection_pb2  # type: ignore[import-untyped]  # ships no types

from amends_coordinator.calls.answers import without_sent
from amends_coordinator.calls.channels import channel_options
from amends_coordinator.calls.metadata import Pairs
from amends_coordinator.calls.secrets import SecretError
from amends_coordinator.calls.static_channels import connection_faults, material, open_channel
from amends_coordinator.core.text import clean_text
from amends_coordinator.definitions.descriptors import is_of_every_server
from amends_coordinator.definitions.errors import quote
from amends_coordinator.definitions.schema import KNOWN_EVERYWHERE
from amends_coordinator.ports.describing import NotDescribedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amends_coordinator.calls.secrets import Secrets
    from amends_coordinator.ports.connections import StaticConnection

_pb: Any = reflection_pb2  # Any: untyped, see above

VERSIONS = ("grpc.reflection.v1", "grpc.reflection.v1alpha")
MOST_FILES = 1_000
MOST_SERVICES = 64
TIMEOUT_S = 10.0
LONGEST_TEXT = 300


class Reflection:
    """The describing port.

    Args:
        secrets: certificates and tokens.
        payload_limit_bytes: the most that a participant's descriptors may have.
        timeout_s: how long a target may take for all of its answers, in seconds.
    """

    def __init__(self, *, secrets: Secrets, payload_limit_bytes: int, timeout_s: float = TIMEOUT_S) -> None:
        self._secrets = secrets
        self._limit_bytes = payload_limit_bytes
        self._timeout_s = timeout_s

    def faults(self, connection: StaticConnection) -> Mapping[str, str]:
        """See the port."""
        return connection_faults(connection, self._secrets)

    async def describe(self, connection: StaticConnection, services: Sequence[str]) -> FileDescriptorSet:
        """See the port."""
        try:
            found = material(connection, self._secrets)
            channel = open_channel(connection, found, self._secrets, channel_options(self._limit_bytes))
        except SecretError as error:
            raise NotDescribedError(str(error)) from error
        try:
            async with asyncio.timeout(self._timeout_s):
                for version in VERSIONS:
                    asking = _Asking(channel, version, connection.target, found.metadata, self._limit_bytes)
                    try:
                        return await asking.files(services)
                    except _UnservedError:
                        continue
        except TimeoutError as error:
            raise NotDescribedError(
                f"{connection.target} did not tell what it serves within {self._timeout_s:g} s; try again, or send its "
                "descriptors"
            ) from error
        finally:
            await channel.close()
        raise NotDescribedError(
            f"{connection.target} has no server reflection, which would tell what it serves; send its descriptors: "
            "`amends participant add … --proto FILE` does from a proto, `--descriptors FILE` from what "
            "`protoc --include_imports --descriptor_set_out=FILE …` makes"
        )


class _UnservedError(Exception):
    """This version of reflection isn't served."""


class _Asking:
    """Questions to one target, and what has been learnt by them."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        version: str,
        target: str,
        metadata: Sequence[tuple[str, str]],
        limit_bytes: int,
    ) -> None:
        self._method: Any = channel.unary_unary(  # Any: the messages are untyped
            f"/{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=_pb.ServerReflectionRequest.SerializeToString,
            response_deserializer=_pb.ServerReflectionResponse.FromString,
        )
        self._target = target
        self._metadata = metadata
        self._limit_bytes = limit_bytes
        self._size = 0
        self._files: dict[str, FileDescriptorProto] = {}

    async def files(self, services: Sequence[str]) -> FileDescriptorSet:
        """The files of these services, or of all, with all that they import."""
        try:
            for service in services or await self._services():
                self._add(await self._ask(f"service {quote(service)}", file_containing_symbol=service))
            while missing := self._missing():
                for name in missing:
                    self._add(await self._ask(f"file {quote(name)}", file_by_filename=name))
                    if name not in self._files:
                        raise NotDescribedError(
                            f"{self._target} answers with other files when it is asked for {quote(name)}"
                        )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise _UnservedError from error
            raise NotDescribedError(self._refusal(error)) from error
        return FileDescriptorSet(file=self._files.values())

    async def _services(self) -> list[str]:
        answer = await self._ask("its services", list_services="")
        listed = [each.name for each in answer.list_services_response.service]
        found = sorted({name for name in listed if not is_of_every_server(name)})
        if not found:
            raise NotDescribedError(
                f"{self._target} serves nothing, beside health and reflection; check the target, or name its services"
            )
        if len(found) > MOST_SERVICES:
            raise NotDescribedError(
                f"{self._target} serves {len(found)} services; name those that sagas call, at most {MOST_SERVICES}"
            )
        return found

    async def _ask(self, what: str, **question: str) -> Any:  # Any: the messages are untyped
        answer = await self._method(_pb.ServerReflectionRequest(**question), metadata=Pairs(self._metadata))
        if answer is None:  # a broken server said OK and sent nothing, or what is no message of reflection
            raise NotDescribedError(f"{self._target} answers nothing when it is asked for {what}; send its descriptors")
        if answer.HasField("error_response"):
            said = self._said(answer.error_response.error_message)
            raise NotDescribedError(
                f"{self._target} has no description of {what} ({said or 'it says no more'}); correct the name, or send "
                "its descriptors"
            )
        return answer

    def _said(self, text: str) -> str:
        return clean_text(without_sent(text, self._metadata))[:LONGEST_TEXT]

    def _add(self, answer: Any) -> None:  # Any: the messages are untyped
        found = answer.file_descriptor_response.file_descriptor_proto
        if len(found) > MOST_FILES:  # even empty ones take time to look at
            raise self._too_much()
        for serialized in found:
            try:
                file = FileDescriptorProto.FromString(serialized)
            except DecodeError as error:
                raise NotDescribedError(
                    f"{self._target} answers with bytes that are no descriptor of a file"
                ) from error
            if file.name not in self._files:
                self._size += len(serialized)
                self._files[file.name] = file
        if len(self._files) > MOST_FILES or self._size > self._limit_bytes:
            raise self._too_much()

    def _too_much(self) -> NotDescribedError:
        return NotDescribedError(
            f"{self._target} describes more than {MOST_FILES} files or {self._limit_bytes} bytes; name the "
            "services that sagas call"
        )

    def _missing(self) -> list[str]:
        """What is imported and not there yet; protobuf's own files are known everywhere."""
        wanted = {name for file in self._files.values() for name in file.dependency}
        return sorted(wanted - self._files.keys() - KNOWN_EVERYWHERE.keys())

    def _refusal(self, error: grpc.aio.AioRpcError) -> str:
        said = self._said(error.details() or "")
        match error.code():
            case grpc.StatusCode.UNAVAILABLE:
                advice = "is it running there, and is TLS set as it wants it?"
            case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
                advice = "check the token and the certificate that it is shown"
            case grpc.StatusCode.RESOURCE_EXHAUSTED:
                advice = "name the services that sagas call"
            case _:
                advice = "try again, or send its descriptors"
        return f"{self._target} did not tell what it serves ({error.code().name}: {said}); {advice}"
