"""Finds the fields of a compensation's or lookup's request that nothing fills: called so, it would undo nothing.

A field that was renamed on one side only is no longer found by name, and an empty id in a compensation is answered
"OK, nothing to undo" by many a participant. So what nobody fills has to be left empty on purpose:

| the definition gives | a fault is |
| --- | --- |
| no template: the annotation alone names the method, or `Call.request` is unset | every field that nothing fills |
| a template, and at least one field is filled, by it or by name | nothing: its author chose the fields |
| a template, and no field is filled | every field that it doesn't leave empty with `default_value` |

What is filled with the failure says why, and not what is to be undone: it doesn't count. Of a oneof one filled member
is enough. A compensation that is `by_key` finds its work without its request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amends_coordinator.definitions.classes import message_class

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import Descriptor, FieldDescriptor

    from amends.v1 import saga_definition_pb2 as pb
    from amends_coordinator.definitions.errors import FaultList


def check_filled(call: pb.Call, target: Descriptor, *, has_template: bool, path: str, faults: FaultList) -> None:
    """Report what nothing fills, one fault a field.

    Args:
        call: the call; its request is resolved by name.
        target: the type of its request.
        has_template: whether the definition itself said anything about the request.
        path: where the request stands: "….compensation.request" or "….lookup.request".
        faults: gets the fields.
    """
    filled, left_empty = _said(call.request, target)
    told_why = {each.target for each in call.request.bindings if each.HasField("failure")}
    if call.by_key or (has_template and not filled <= told_why):
        return
    for name, choice in _choices(target):
        if not choice & (filled | left_empty):
            faults.add(path, _sentence(name, choice, call, is_undo=path.endswith(".compensation.request")))


def _said(template: pb.MessageTemplate, target: Descriptor) -> tuple[set[str], set[str]]:
    """The top-level fields that get a value, and those that are said to stay empty."""
    filled: set[str] = set()
    left_empty: set[str] = set()
    for binding in template.bindings:
        (left_empty if binding.HasField("default_value") else filled).add(binding.target.partition(".")[0])
    if template.HasField("literals"):
        filled |= {each.name for each, _ in message_class(target).FromString(template.literals.value).ListFields()}
    return filled, left_empty


def _choices(target: Descriptor) -> Iterator[tuple[str, set[str]]]:
    """What can be filled: each field, and each oneof with its members; in the order of the numbers."""
    seen: set[str] = set()
    for each in sorted(target.fields, key=_number):
        oneof = each.containing_oneof
        if oneof is None or len(oneof.fields) == 1:  # `optional` makes a oneof of one
            yield each.name, {each.name}
        elif oneof.name not in seen:
            seen.add(oneof.name)
            yield oneof.name, {member.name for member in oneof.fields}


def _number(field: FieldDescriptor) -> int:
    return field.number


def _sentence(name: str, choice: set[str], call: pb.Call, *, is_undo: bool) -> str:
    method = call.method.rpartition("/")[2]
    what, field = (name, name) if choice == {name} else (f"oneof {name}", min(choice))
    origin = "neither the action's response nor its request has" if is_undo else "the action's request doesn't have"
    said_by = "compensated_by" if is_undo else "looked_up_by"
    often, or_else = ("", ", or make it by_key") if is_undo else (", often to saga.action_key", "")
    return (
        f"nothing fills {what}: {origin} a field of that name and type; bind it ({said_by}({method}({field}=...)))"
        f"{often}, rename it, or leave it empty on purpose (`default_value`; in Python {method}({field}=None)){or_else}"
    )
