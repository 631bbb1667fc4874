"""What a target may answer when it is asked what it serves: descriptors or a sentence, never anything else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

# grpcio-reflection ships no types.
from grpc_reflection.v1alpha import reflection_pb2  # type: ignore[import-untyped]  # ships no types

from acme.v1 import charges_pb2, price_pb2
from amends_coordinator.calls import reflection
from amends_coordinator.calls.reflection import Reflection
from amends_coordinator.calls.secrets import Secrets
from amends_coordinator.definitions.schema import Schema
from amends_coordinator.ports.connections import StaticConnection
from amends_coordinator.ports.describing import NotDescribedError

_pb: Any = reflection_pb2  # Any: untyped, see above
V1, V1ALPHA = "grpc.reflection.v1", "grpc.reflection.v1alpha"
SERVICE = "acme.v1.ChargeService"
CHARGES, PRICE = charges_pb2.DESCRIPTOR.serialized_pb, price_pb2.DESCRIPTOR.serialized_pb
FILES = {"acme/v1/charges.proto": CHARGES, "acme/v1/price.proto": PRICE}

# Any: the messages of reflection are untyped, see above.
Answering: TypeAlias = Callable[[Any], Awaitable[Any]]


@asynccontextmanager
async def reflecting(version: str, answer: Answering) -> AsyncGenerator[StaticConnection]:
    """A server that serves one version of reflection and nothing else."""

    async def talk(requests: Any, _: Any) -> AsyncGenerator[Any]:
        async for request in requests:
            yield await answer(request)

    handler = grpc.stream_stream_rpc_method_handler(
        talk,  # pyright: ignore[reportArgumentType] the stubs describe the synchronous server only
        request_deserializer=_pb.ServerReflectionRequest.FromString,
        response_serializer=_pb.ServerReflectionResponse.SerializeToString,
    )
    server = grpc.aio.server()
    handlers = {"ServerReflectionInfo": handler}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(f"{version}.ServerReflection", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield StaticConnection(target=f"127.0.0.1:{port}")
    finally:
        await server.stop(None)


async def honest(request: Any) -> Any:
    """Answers as a server in another language may: one file for each question, and none that everybody has."""
    if request.HasField("list_services"):
        names = (SERVICE, "grpc.health.v1.Health", f"{V1}.ServerReflection")
        return _pb.ServerReflectionResponse(list_services_response={"service": [{"name": name} for name in names]})
    if request.file_containing_symbol == SERVICE:
        return files(CHARGES)
    if request.file_by_filename in FILES:
        return files(FILES[request.file_by_filename])
    return _pb.ServerReflectionResponse(error_response={"error_code": 5, "error_message": "no\x1b such thing"})


def files(*serialized: bytes) -> Any:
    """An answer with files."""
    return _pb.ServerReflectionResponse(file_descriptor_response={"file_descriptor_proto": serialized})


def asking(*, limit_bytes: int = 1 << 20, timeout_s: float = 10) -> Reflection:
    """What asks."""
    return Reflection(secrets=Secrets(""), payload_limit_bytes=limit_bytes, timeout_s=timeout_s)


@pytest.mark.parametrize("version", [V1, V1ALPHA])
async def test_the_whole_closure_by_either_version(version: str) -> None:
    """All that a service's methods need, wherever it is imported from; health and reflection are left out."""
    async with reflecting(version, honest) as connection:
        found = await asking().describe(connection, ())
        named = await asking().describe(connection, (SERVICE,))
    assert found == named
    assert {file.name for file in found.file} == set(FILES)
    assert Schema(found).method(f"{SERVICE}/CreateCharge").input_type.full_name == "acme.v1.CreateChargeRequest"


async def said_of(answer: Answering, *services: str, limit_bytes: int = 1 << 20, timeout_s: float = 10) -> str:
    """The sentence that an answer ends in, without the target."""
    async with reflecting(V1, answer) as connection:
        with pytest.raises(NotDescribedError) as caught:
            await asking(limit_bytes=limit_bytes, timeout_s=timeout_s).describe(connection, services)
        return str(caught.value).removeprefix(f"{connection.target} ")


async def test_a_service_that_it_does_not_know() -> None:
    """What the target says of it, made safe to show."""
    said = await said_of(honest, "acme.v1.Other")
    assert said.startswith("has no description of service 'acme.v1.Other' (no\\x1b such thing); ")


async def test_nothing_but_health() -> None:
    """A server that serves nothing which a saga could call."""

    async def idle(_: Any) -> Any:
        return _pb.ServerReflectionResponse(list_services_response={"service": [{"name": "grpc.health.v1.Health"}]})

    assert (await said_of(idle)).startswith("serves nothing, beside health and reflection")


async def test_names_that_are_meant_for_a_terminal() -> None:
    """Whatever a target calls its services and files, a sentence stays a sentence, and short enough to be sent."""
    name = "\x1b[2J" + "x" * 100_000

    async def listed(request: Any) -> Any:
        if request.HasField("list_services"):
            return _pb.ServerReflectionResponse(list_services_response={"service": [{"name": name}]})
        return _pb.ServerReflectionResponse(error_response={"error_code": 5, "error_message": "no"})

    async def imported(request: Any) -> Any:
        if request.file_by_filename:
            return _pb.ServerReflectionResponse(error_response={"error_code": 5, "error_message": "no"})
        return files(FileDescriptorProto(name="a.proto", dependency=[name]).SerializeToString())

    for answer, services in ((listed, ()), (imported, (SERVICE,))):
        said = await said_of(answer, *services)
        assert "\x1b" not in said
        assert len(said) < 1_000


async def test_a_target_that_repeats_what_it_was_sent() -> None:
    """A token or a header's value shows in no sentence."""

    async def repeating(_: Any) -> Any:
        return _pb.ServerReflectionResponse(error_response={"error_code": 5, "error_message": "who is s3cret-value?"})

    async with reflecting(V1, repeating) as connection:
        asked = replace(connection, headers=(("x-api-key", "s3cret-value"),))
        with pytest.raises(NotDescribedError, match=r"\(who is …\?\)"):
            await asking().describe(asked, ())


async def test_files_that_are_empty_count_too() -> None:
    """L2: a million of them fit into one answer, and looking at each would stop everybody."""

    async def empty(_: Any) -> Any:
        return files(*[b""] * 1_001)

    assert (await said_of(empty, SERVICE)).startswith("describes more than 1000 files")


async def test_bytes_that_are_no_file() -> None:
    """Garbage is a sentence."""

    async def garbage(_: Any) -> Any:
        return files(b"\xff\xff\xff")

    assert await said_of(garbage, SERVICE) == "answers with bytes that are no descriptor of a file"


async def test_another_file_than_was_asked_for() -> None:
    """A target that never sends what it is asked for isn't asked for ever."""

    async def stubborn(_: Any) -> Any:
        return files(CHARGES)

    assert await said_of(stubborn, SERVICE) == "answers with other files when it is asked for 'acme/v1/price.proto'"


async def test_an_endless_chain_of_files_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many files, and no more."""
    monkeypatch.setattr(reflection, "MOST_FILES", 50)

    async def endless(request: Any) -> Any:
        name = request.file_by_filename or "0"
        return files(FileDescriptorProto(name=name, dependency=[str(int(name) + 1)]).SerializeToString())

    assert (await said_of(endless, SERVICE)).startswith("describes more than 50 files")


async def test_too_many_bytes_are_refused() -> None:
    """Together, or in one message."""
    assert "bytes; name the services" in await said_of(honest, SERVICE, limit_bytes=len(CHARGES))

    async def huge(_: Any) -> Any:
        return files(FileDescriptorProto(name="x" * 200_000).SerializeToString())

    assert (await said_of(huge, SERVICE, limit_bytes=1_024)).startswith("did not tell what it serves (RESOURCE_EXHAUST")


async def test_a_target_that_never_answers() -> None:
    """Bounded in time, for all of its answers together."""

    async def never(_: Any) -> Any:
        await asyncio.Event().wait()

    assert (await said_of(never, timeout_s=0.2)).startswith("did not tell what it serves within 0.2 s")


async def test_a_target_that_breaks() -> None:
    """What gRPC says of it, and what to do."""

    async def broken(_: Any) -> Any:
        raise grpc.RpcError

    assert (await said_of(broken)).startswith("did not tell what it serves (UNKNOWN: ")


async def test_no_reflection_at_all() -> None:
    """How to do without it: the options, and how protoc makes the file."""
    async with reflecting("other", honest) as connection:
        with pytest.raises(NotDescribedError, match=r"--proto FILE.*--descriptors FILE.*protoc --include_imports"):
            await asking().describe(connection, ())
