"""Says in words where each field of a request comes from, written as in Python: "seat = hold.request.seat"."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict

from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.definitions.builders import source_of
from amends_coordinator.definitions.classes import message_class
from amends_coordinator.definitions.errors import clip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pool import DescriptorPool

QUOTED_IN_JSON = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64, FieldDescriptor.CPPTYPE_ENUM)


def origins(template: pb.MessageTemplate, target: Descriptor, pool: DescriptorPool) -> Iterator[str]:
    """One text for each field that a template fills or leaves empty on purpose, in the order of their names."""
    found = dict(_literals(template, target, pool))
    found.update((binding.target, _origin(binding)) for binding in template.bindings)
    yield from (f"{name} = {found[name]}" for name in sorted(found))


def _origin(binding: pb.Binding) -> str:
    copied = source_of(binding)
    if copied is not None:
        kind, step, path = copied
        message = f"{step}.{kind.removeprefix('step_')}" if step else kind
        return f"{message}.{path}" if path else message
    if binding.HasField("saga"):
        return f"saga.{pb.SagaField.Name(binding.saga).removeprefix('SAGA_FIELD_').removeprefix('SAGA_').lower()}"
    if binding.HasField("failure"):
        return f"failure.{pb.FailureField.Name(binding.failure).removeprefix('FAILURE_FIELD_').lower()}"
    return "(empty on purpose)"


def _literals(template: pb.MessageTemplate, target: Descriptor, pool: DescriptorPool) -> Iterator[tuple[str, str]]:
    """The fields of a template's literals with their values as JSON, cut where they are long."""
    if not template.HasField("literals"):
        return
    message = message_class(target).FromString(template.literals.value)
    for name, value in MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool).items():
        text = json.dumps(value, ensure_ascii=False)
        is_bare = isinstance(value, str) and target.fields_by_name[name].cpp_type in QUOTED_IN_JSON
        yield name, clip(text.strip('"') if is_bare else text)
