"""What real clients print: every payload as JSON, whoever comes and goes, and whatever else stands beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.json_format import MessageToJson

from amends.v1 import registry_service_pb2, saga_service_pb2
from tests.grpcurl.clients import by_buf, by_grpcurl, methods_by_buf, run
from tests.grpcurl.odd_types import AS_BYTES, NOWHERE, SHOWN, TEXT_THAT_IS_NONE, odd, odd_definition
from tests.scenarios.inside import Inside, inside

if TYPE_CHECKING:
    from pathlib import Path

BYTES = "type.googleapis.com/odd.v1.Odd/google.protobuf.BytesValue"
MANY = 50


async def start_odd_sagas(coordinator: Inside, payloads: dict[str, bytes]) -> None:
    """A saga for each of these inputs, with its name as id; they wait for a participant that never comes."""
    request = saga_service_pb2.RegisterSagaDefinitionRequest(definition=odd_definition())
    await coordinator.sagas.RegisterSagaDefinition(request)
    for name, payload in payloads.items():
        start = saga_service_pb2.StartSagaRequest(saga_id=name, definition_name="odd")
        start.input.type_url, start.input.value = "type.googleapis.com/odd.v1.Odd", payload
        await coordinator.sagas.StartSaga(start)


def are_all_there(listed: Any) -> None:  # Any: JSON
    """One bad payload hides no other: each is shown as what it can be shown as."""
    types = {saga["sagaId"]: saga["input"]["@type"] for saga in listed["sagas"]}
    assert {name for name, shown in types.items() if shown == BYTES} == {*AS_BYTES, "text-that-is-none"}
    assert {name for name, shown in types.items() if shown == "type.googleapis.com/odd.v1.Odd"} == {*SHOWN}


def odd_payloads() -> dict[str, bytes]:
    """All of them by name, but for the one that buf can't bear."""
    texts = {name: odd(text) for name, text in (SHOWN | AS_BYTES).items()}
    return texts | {"text-that-is-none": TEXT_THAT_IS_NONE}


async def test_buf_curl_finds_every_method_and_shows_every_payload(tmp_path: Path) -> None:
    """L2: a client of reflection v1 that is not grpcurl lists, asks, and prints whatever payloads there are."""
    async with inside(tmp_path) as coordinator:
        found = await methods_by_buf(coordinator.address)
        assert {"amends.v1.SagaService/GetSaga", "grpc.health.v1.Health/Check"} <= found
        await start_odd_sagas(coordinator, odd_payloads())
        are_all_there(await by_buf(coordinator.address, "SagaService/ListSagas"))
        got = await by_buf(coordinator.address, "SagaService/GetSaga", saga_id="any-in-any")
        assert got["saga"]["input"]["any"]["value"] == {"@type": "type.googleapis.com/odd.v1.Odd", "name": "n"}


@pytest.mark.grpcurl
async def test_grpcurl_shows_every_payload_and_spoils_none(grpcurl: Path, tmp_path: Path) -> None:
    """L2: the same with grpcurl, which also shows what is beside an inner type that nobody knows."""
    async with inside(tmp_path) as coordinator:
        await start_odd_sagas(coordinator, odd_payloads())
        are_all_there(await by_grpcurl(grpcurl, coordinator.address, "SagaService/ListSagas"))
        await start_odd_sagas(coordinator, {"nowhere": odd('name: "n" ' + NOWHERE)})
        got = await by_grpcurl(grpcurl, coordinator.address, "SagaService/GetSaga", saga_id="nowhere")
        assert got["saga"]["input"]["name"] == "n"
        assert got["saga"]["input"]["any"]["@value"] == "YWJj"


@pytest.mark.grpcurl
async def test_payloads_stay_readable_whoever_comes_and_goes(grpcurl: Path, tmp_path: Path) -> None:
    """A saga reads the same before its participant was ever seen, while it is there, when it has gone, when the file of
    its types has them no more, and after a restart of the coordinator.
    """
    seen: list[Any] = []  # Any: JSON

    async def look(coordinator: Inside) -> None:
        got = await by_grpcurl(grpcurl, coordinator.address, "SagaService/GetSaga", saga_id="plain")
        seen.append((got["saga"]["input"], got["saga"]["intents"][0]["request"]))

    async with inside(tmp_path) as coordinator:
        await start_odd_sagas(coordinator, {"plain": odd(SHOWN["plain"])})
        await look(coordinator)
        await coordinator.announce("steps", "127.0.0.1:1")
        await look(coordinator)
        await coordinator.withdraw("steps")
        await look(coordinator)
        dropped = team(1)
        dropped.descriptors.file[0].name = "odd/v1/odd.proto"
        await coordinator.registry.RegisterParticipant(dropped)
        await look(coordinator)
    async with inside(tmp_path) as coordinator:
        await look(coordinator)
    assert seen[0] == (
        {"@type": "type.googleapis.com/odd.v1.Odd", "name": "n"},
        {"@type": "type.googleapis.com/scenario.v1.DoRequest", "name": "n"},
    )
    assert all(each == seen[0] for each in seen)


def team_files(number: int) -> FileDescriptorSet:
    """The files of one of many teams, whose types have the same names in other packages."""
    file = FileDescriptorProto(name=f"team_{number}/v1/work.proto", package=f"team_{number}.v1", syntax="proto3")
    for name in ("WorkRequest", "WorkResponse"):
        kind = FieldDescriptorProto.TYPE_STRING
        file.message_type.add(name=name).field.add(name=f"of_{number}", number=1, type=kind, label=1)
    kinds = {"input_type": f".{file.package}.WorkRequest", "output_type": f".{file.package}.WorkResponse"}
    file.service.add(name="WorkService").method.add(name="Work", **kinds)
    return FileDescriptorSet(file=[file])


def team(number: int) -> registry_service_pb2.RegisterParticipantRequest:
    """Announces one of many participants."""
    instance = registry_service_pb2.ParticipantInstance(instance_id="i-1", address="127.0.0.1:1")
    return registry_service_pb2.RegisterParticipantRequest(
        name=f"team-{number}",
        services=[f"team_{number}.v1.WorkService"],
        instance=instance,
        descriptors=team_files(number),
    )


@pytest.mark.grpcurl
async def test_the_types_of_many_participants_are_told_apart(grpcurl: Path, tmp_path: Path) -> None:
    """Fifty participants: the first, one in the middle and the last are described, each with its own fields."""
    async with inside(tmp_path) as coordinator:
        for number in range(MANY):
            await coordinator.registry.RegisterParticipant(team(number))
        listed = await by_grpcurl(grpcurl, coordinator.address, "RegistryService/ListParticipants", page_size=MANY)
        assert len(listed["participants"]) == MANY
        for number in (0, MANY // 2, MANY - 1):
            package = f"team_{number}.v1"
            describe = ("-plaintext", coordinator.address, "describe")
            method = await run(grpcurl, *describe, f"{package}.WorkService.Work")
            assert f"rpc Work ( .{package}.WorkRequest ) returns ( .{package}.WorkResponse );" in method
            assert f"string of_{number} = 1;" in await run(grpcurl, *describe, f"{package}.WorkRequest")


@pytest.mark.grpcurl
async def test_other_content_under_a_known_name_is_refused_in_a_sentence(grpcurl: Path, tmp_path: Path) -> None:
    """Nobody sees a payload through the wrong type: who comes second hears which file, at whom, and what to do."""
    async with inside(tmp_path) as coordinator:
        await coordinator.registry.RegisterParticipant(team(1))
        contrary = team(1)
        contrary.name = "others"
        contrary.descriptors.file[0].message_type.add(name="Surprise")
        arguments = ("-plaintext", "-d", MessageToJson(contrary), coordinator.address)
        said = await run(grpcurl, *arguments, "amends.v1.RegistryService/RegisterParticipant")
        assert "Code: FailedPrecondition" in said
        assert (
            "Message: file 'team_1/v1/work.proto' has other content at participant 'team-1'; "
            "announce the same file as that one, or rename the package of yours\n"
        ) in said
        assert "DESCRIPTOR_CONFLICT" in said
        listed = await by_grpcurl(grpcurl, coordinator.address, "RegistryService/ListParticipants")
        assert [each["name"] for each in listed["participants"]] == ["team-1"]
