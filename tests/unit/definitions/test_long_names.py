"""Names that are longer than what the ledger keeps of them."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.definitions.registration import InvalidDefinitionError, resolve


def definition_of(service: str) -> pb.SagaDefinition:
    """A definition of one step, whose method is `Go` of this service of the package `p`."""
    files = FileDescriptorSet()
    file = files.file.add(name="p.proto", package="p", syntax="proto3")
    file.message_type.add(name="M")
    file.service.add(name=service).method.add(name="Go", input_type=".p.M", output_type=".p.M")
    definition = pb.SagaDefinition(name="long", input_type="p.M", descriptors=files)
    step = definition.steps.add(name="a", kind=pb.STEP_KIND_READ_ONLY)
    step.action.method = f"p.{service}/Go"
    return definition


def test_a_method_longer_than_the_ledger_keeps_is_a_fault() -> None:
    """L2: refused when the definition is registered, not by the database when its sagas start."""
    assert resolve(definition_of("S" * 251)).steps[0].action.method == f"p.{'S' * 251}/Go"
    with pytest.raises(InvalidDefinitionError) as caught:
        resolve(definition_of("S" * 252))
    (fault,) = caught.value.faults
    assert fault.path == "steps[0].action.method"
    assert "has 257 characters; a method with its package and service has at most 256" in fault.description
