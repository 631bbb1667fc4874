"""Reflection over real gRPC: payloads stay readable whoever comes and goes, in both versions of the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

# grpcio-reflection ships no types.
from grpc_reflection.v1alpha import reflection_pb2  # type: ignore[import-untyped]  # ships no types

from amends.v1 import registry_service_pb2
from amends_coordinator.grpc_api.reflection import SERVICES

if TYPE_CHECKING:
    from tests.integration.api.conftest import Served

_messages: Any = reflection_pb2  # Any: untyped, see the imports
Ask: Any = _messages.ServerReflectionRequest


async def ask(
    served: Served, *questions: Any, service: str = SERVICES[0]
) -> list[Any]:  # Any: untyped, see the imports
    """The answers to questions on one stream."""
    call = served.channel.stream_stream(
        f"/{service}/ServerReflectionInfo",
        request_serializer=Ask.SerializeToString,
        response_deserializer=_messages.ServerReflectionResponse.FromString,
    )
    return [answer async for answer in call(iter(questions))]


def files(answer: Any) -> dict[str, FileDescriptorProto]:  # Any: untyped, see the imports
    """The files of an answer."""
    parsed = (FileDescriptorProto.FromString(raw) for raw in answer.file_descriptor_response.file_descriptor_proto)
    return {file.name: file for file in parsed}


@pytest.mark.parametrize("service", SERVICES)
async def test_both_versions_list_what_answers_here(served: Served, service: str) -> None:
    """grpcurl before 1.8.8 speaks v1alpha only, buf curl v1."""
    (answer,) = await ask(served, Ask(list_services=""), service=service)
    names = {each.name for each in answer.list_services_response.service}
    assert {"amends.v1.SagaService", "amends.v1.OperatorService", "grpc.health.v1.Health", *SERVICES} <= names
    described = await ask(served, *(Ask(file_containing_symbol=name) for name in sorted(names)), service=service)
    assert all(files(answer) for answer in described)


async def test_types_of_a_participant_stay_when_it_has_gone(served: Served) -> None:
    """A payload is readable before and after participants come and go."""
    question = Ask(file_containing_symbol="scenario.v1.DoRequest")
    (before,) = await ask(served, question)
    assert before.error_response.error_code == 5
    await served.announce()
    (there,) = await ask(served, question)
    assert "scenario/v1/scenario.proto" in files(there)
    leave = registry_service_pb2.DeregisterParticipantRequest(name="steps", instance_id="i-1")
    await served.registry.DeregisterParticipant(leave)
    (gone,) = await ask(served, question)
    assert files(gone) == files(there)


async def test_types_of_a_definition_need_no_participant(served: Served) -> None:
    """A saga's payloads are readable although its participants were never seen by this process."""
    (before,) = await ask(served, Ask(file_containing_symbol="scenario.v1.StepService.Do"))
    assert before.error_response.error_code == 5
    await served.register()
    (found,) = await ask(served, Ask(file_containing_symbol="scenario.v1.StepService.Do"))
    assert "scenario/v1/scenario.proto" in files(found)
    (by_name,) = await ask(served, Ask(file_by_filename="scenario/v1/scenario.proto"))
    assert files(by_name) == files(found)


async def test_our_own_fields_have_json_names(served: Served) -> None:
    """One answer shows all fields in one spelling."""
    (answer,) = await ask(served, Ask(file_containing_symbol="amends.v1.Saga"))
    saga = next(each for each in files(answer)["amends/v1/saga.proto"].message_type if each.name == "Saga")
    assert "sagaId" in {field.json_name for field in saga.field}


async def test_extension_numbers_of_a_known_type_are_no_error(served: Served) -> None:
    """A reader that got an error for a type without extensions showed its payloads as unknown."""
    known, unknown = await ask(
        served,
        Ask(all_extension_numbers_of_type="amends.v1.Saga"),
        Ask(all_extension_numbers_of_type="nobody.knows.This"),
    )
    assert known.all_extension_numbers_response.base_type_name == "amends.v1.Saga"
    assert not known.HasField("error_response")
    assert unknown.error_response.error_code == 5


async def test_a_bad_question_ends_no_stream(served: Served) -> None:
    """What asks nothing is told so, and the next question is answered."""
    nothing, listed = await ask(served, Ask(), Ask(list_services=""))
    assert nothing.error_response.error_code == 3
    assert listed.list_services_response.service


async def test_error_details_and_protobufs_own_types_are_known(served: Served) -> None:
    """Details of refusals, and payloads of types that none of our messages uses, are printed as JSON."""
    names = ("google.rpc.BadRequest", "google.rpc.Status", "google.protobuf.StringValue", "google.protobuf.Struct")
    answers = await ask(served, *(Ask(file_containing_symbol=name) for name in names))
    assert all(files(answer) for answer in answers)
