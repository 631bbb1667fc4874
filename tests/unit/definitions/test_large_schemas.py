"""Large schemas: many types that lead from one to the next."""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from amends_coordinator.core.ids import StepName
from amends_coordinator.core.states import Direction
from amends_coordinator.definitions.compiled import compile_definition
from amends_coordinator.definitions.outlook import outlook_of
from amends_coordinator.definitions.registration import resolve
from tests.unit.definitions.samples import ANNOUNCED, SERVICE, definition, saga, stored

COUNT = 2_000
TYPES = [
    DescriptorProto(
        name=f"M{index}",
        field=[
            FieldDescriptorProto(
                name="next",
                number=1,
                type=FieldDescriptorProto.TYPE_MESSAGE,
                type_name=f".chain.M{(index + 1) % COUNT}",
            ),
            FieldDescriptorProto(name="text", number=2, type=FieldDescriptorProto.TYPE_STRING),
        ],
    )
    for index in range(COUNT)
]
CHAIN = FileDescriptorProto(name="chain.proto", package="chain", syntax="proto3", message_type=TYPES)


def test_types_that_lead_from_one_to_the_next_for_long() -> None:
    """L2: what `check` accepts compiles, however large the schema: protobuf's own way of making classes would end in a
    RecursionError.
    """
    action = f'method: "{SERVICE}/Everything" request {{ bindings {{ target: "key" input: "next.next.text" }} }}'
    step = f'steps {{ name: "all" kind: STEP_KIND_READ_ONLY action {{ {action} }} }}'
    written = definition(f'name: "all" input_type: "chain.M0" {step}')
    written.descriptors.CopyFrom(FileDescriptorSet(file=[*ANNOUNCED.file, CHAIN]))
    resolved = resolve(written)
    of = compile_definition(stored(resolved))
    assert outlook_of(resolved).version == of.version
    request = of.bind(saga(of, b"\n\x06\n\x04\x12\x02hi"), StepName("all"), Direction.ACTION)
    assert request.endswith(b"hi")
