"""Finds fields that a message type requires (proto2) and that a template leaves empty: it could never be sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amends_coordinator.definitions.classes import message_class
from amends_coordinator.definitions.fields import find_path, is_repeated
from amends_coordinator.definitions.moves import clearer

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

    from amends.v1 import saga_definition_pb2 as pb
    from amends_coordinator.definitions.errors import FaultList


def check_required(template: pb.MessageTemplate, target: Descriptor, path: str, faults: FaultList) -> None:
    """Report what is required and never filled, one fault a field.

    Args:
        template: has no faults otherwise, and is resolved by name where that is done.
        target: the type that it builds.
        path: where it stands.
        faults: gets the fields.
    """
    # Any: the stubs of messages don't know how they tell what they lack.
    built: Any = message_class(target).FromString(template.literals.value)
    wholes: list[str] = []  # what is in a message that is copied as a whole is its source's affair
    for binding in template.bindings:
        fields = find_path(target, binding.target)
        *parents, last = fields
        if binding.HasField("default_value"):
            clearer(fields)(built)
            continue
        holder = built
        for parent in parents:
            holder = getattr(holder, parent.name)
        if is_repeated(last):
            holder.ClearField(last.name)
        elif last.message_type is not None:
            wholes.append(f"{binding.target}.")
            getattr(holder, last.name).SetInParent()
        else:
            setattr(holder, last.name, last.default_value)
    for name in built.FindInitializationErrors():
        if not name.startswith(tuple(wholes)):
            faults.add(path, f"{target.full_name} requires {name}, and nothing fills it; bind it, or give it a literal")
