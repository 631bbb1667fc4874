"""Registration's checks of message templates: literals, targets, and whether the sources' types agree with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError, EncodeError

from amends_coordinator.definitions.classes import message_class
from amends_coordinator.definitions.errors import quote
from amends_coordinator.definitions.fields import PathError, field_shape, find_path, mismatch
from amends_coordinator.definitions.sources import source_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.descriptor import Descriptor, FieldDescriptor

    from amends.v1 import saga_definition_pb2 as pb
    from amends_coordinator.definitions.errors import FaultList
    from amends_coordinator.definitions.sources import Scope, SourceField

TYPE_URL_PREFIX = "type.googleapis.com/"


@dataclass(slots=True)
class Targets:
    """The targets of one template so far: what is bound, what lies above it, and which members of oneofs."""

    bound: dict[tuple[str, ...], int] = field(default_factory=dict[tuple[str, ...], int])
    above: dict[tuple[str, ...], int] = field(default_factory=dict[tuple[str, ...], int])
    members: dict[tuple[tuple[str, ...], str], dict[str, SourceField | None]] = field(
        default_factory=dict[tuple[tuple[str, ...], str], "dict[str, SourceField | None]"]
    )

    def clash(self, path: Sequence[FieldDescriptor], index: int) -> str | None:
        """Take a target; why it can't be taken, or None."""
        names = tuple(each.name for each in path)
        if names in self.bound:
            return f"bindings[{self.bound[names]}] has the same target; bind it once"
        if names in self.above:
            return f"bindings[{self.above[names]}] binds a field inside it; bind the whole or its parts"
        for length in range(1, len(names)):
            if names[:length] in self.bound:
                return (
                    f"it lies inside the target of bindings[{self.bound[names[:length]]}]; bind the whole or its parts"
                )
            self.above.setdefault(names[:length], index)
        self.bound[names] = index
        return None

    def oneof_clash(self, path: Sequence[FieldDescriptor], source: SourceField | None) -> str | None:
        """Take the members of oneofs along a target; why they can't be taken, or None."""
        names = tuple(each.name for each in path)
        for depth, each in enumerate(path):
            if each.containing_oneof is None:
                continue
            members = self.members.setdefault((names[:depth], each.containing_oneof.name), {})
            mine = source if depth == len(path) - 1 else None
            for name, other in members.items():
                if name != each.name and not (mine and other and mine.excludes(other)):
                    return (
                        f"{name} is bound too, and oneof {each.containing_oneof.name} holds one of them; bind only one"
                    )
            members.setdefault(each.name, mine)
        return None


def check_template(
    template: pb.MessageTemplate, target: Descriptor, scope: Scope, path: str, faults: FaultList
) -> None:
    """Check one template against the type that it builds; its literals are brought into their canonical form."""
    if template.HasField("literals"):
        _check_literals(template, target, f"{path}.literals", faults)
    targets = Targets()
    for index, binding in enumerate(template.bindings):
        place = f"{path}.bindings[{index}]"
        fields = _target_fields(binding, target, f"{place}.target", faults)
        shape, source = source_shape(binding, scope, place, faults)
        if not fields:
            continue
        clash = targets.clash(fields, index)
        if clash is None and not binding.HasField("default_value"):
            clash = targets.oneof_clash(fields, source)
        if clash:
            faults.add(f"{place}.target", f"{quote(binding.target)}: {clash}")
        misfit = mismatch(shape, field_shape(fields[-1])) if shape else None
        if misfit:
            where = f"{place}.{binding.WhichOneof('source')}"
            faults.add(where, f"{quote(binding.target)}: {misfit}; bind a field of the target's type")


def tidy(call: pb.Call) -> None:
    """Bring a call's request into its canonical form: calls that mean the same have the same version."""
    sort_bindings(call.request)
    if not call.request.ByteSize():
        call.ClearField("request")


def sort_bindings(template: pb.MessageTemplate) -> None:
    """Bring bindings into the order of their targets; each target is bound once, so their order means nothing."""
    ordered = sorted(template.bindings, key=lambda binding: binding.target)
    del template.bindings[:]
    template.bindings.extend(ordered)


def _check_literals(template: pb.MessageTemplate, target: Descriptor, path: str, faults: FaultList) -> None:
    literals = template.literals
    if literals.type_url.rpartition("/")[2] != target.full_name:
        faults.add(path, f"{quote(literals.type_url)} is another type; send a {target.full_name}")
        return
    try:
        message = message_class(target).FromString(literals.value)
        value = message.SerializePartialToString(deterministic=True)
    except (DecodeError, EncodeError):
        faults.add(path, f"the bytes don't parse as {target.full_name}; send a message of that type")
        return
    literals.type_url, literals.value = f"{TYPE_URL_PREFIX}{target.full_name}", value
    if not value:
        template.ClearField("literals")


def _target_fields(
    binding: pb.Binding, target: Descriptor, path: str, faults: FaultList
) -> tuple[FieldDescriptor, ...]:
    if not binding.target:
        faults.add(path, f"it is required; name a field of {target.full_name}")
        return ()
    try:
        return find_path(target, binding.target)
    except PathError as error:
        faults.add(path, str(error))
        return ()
