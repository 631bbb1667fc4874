"""Resolves compensation and lookup requests by name: once, at registration, and then frozen as bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.definitions.classes import message_class
from amends_coordinator.definitions.fields import field_shape
from amends_coordinator.definitions.sources import SourceField

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.descriptor import Descriptor, FieldDescriptor

    from amends_coordinator.definitions.errors import FaultList


def resolve_by_name(
    template: pb.MessageTemplate,
    target: Descriptor,
    sources: Sequence[tuple[str, str, Descriptor | None]],
    path: str,
    faults: FaultList,
) -> None:
    """Bind every field that has no value yet to the field of its name and type in the first source that has one.

    Args:
        template: the template; bindings are added to it.
        target: the type that it builds.
        sources: (which message, of which step, its type), the preferred first.
        path: where the template stands.
        faults: gets what can't be decided.
    """
    taken, taken_oneofs = _taken(template, target)
    members: dict[str, list[tuple[str, SourceField]]] = {}
    for each in sorted(target.fields, key=lambda each: each.number):
        oneof = each.containing_oneof
        if each.name in taken or (oneof is not None and oneof.name in taken_oneofs):
            continue
        found = _same_field(each, sources)
        if found is None:
            continue
        template.bindings.append(_copy_binding(each.name, found))
        if oneof is not None:
            others = members.setdefault(oneof.name, [])
            for name, other in others:
                if not found.excludes(other):
                    faults.add(
                        path,
                        f"{name} and {each.name} are both found by name, and oneof {oneof.name} holds one of them;"
                        " bind one, or give one `default_value`",
                    )
            others.append((each.name, found))


def _taken(template: pb.MessageTemplate, target: Descriptor) -> tuple[set[str], set[str]]:
    """The top-level fields that are bound, literal or meant to stay empty, and the oneofs that thereby have a value."""
    filled = {
        binding.target.partition(".")[0] for binding in template.bindings if not binding.HasField("default_value")
    }
    if template.HasField("literals"):
        literals = message_class(target).FromString(template.literals.value)
        filled |= {each.name for each, _ in literals.ListFields()}
    known = [target.fields_by_name[name] for name in filled if name in target.fields_by_name]
    oneofs = {each.containing_oneof.name for each in known if each.containing_oneof is not None}
    return filled | {binding.target.partition(".")[0] for binding in template.bindings}, oneofs


def _same_field(wanted: FieldDescriptor, sources: Sequence[tuple[str, str, Descriptor | None]]) -> SourceField | None:
    for kind, step, message in sources:
        found = message.fields_by_name.get(wanted.name) if message is not None else None
        if found is not None and field_shape(found) == field_shape(wanted):
            oneof = found.containing_oneof
            return SourceField(kind, step, wanted.name, oneof.name if oneof is not None else "")
    return None


def _copy_binding(target: str, source: SourceField) -> pb.Binding:
    place = pb.StepField(step=source.step, path=source.path)
    if source.kind == "step_request":
        return pb.Binding(target=target, step_request=place)
    return pb.Binding(target=target, step_response=place)
