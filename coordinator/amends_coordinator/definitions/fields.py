"""Paths of fields, and which value fits which field.

| source -> target | rule |
| --- | --- |
| scalars | the same class, or a widening that loses nothing (see `WIDENINGS`); never string <-> bytes |
| enums, messages | the same full name |
| maps, repeated fields | only to their like, by key and value |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf.descriptor import FieldDescriptor

from amends_coordinator.definitions.errors import DefinitionError, did_you_mean, listing, quote

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

SCALARS = {
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_SINT32: "int32",
    FieldDescriptor.TYPE_SFIXED32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_SINT64: "int64",
    FieldDescriptor.TYPE_SFIXED64: "int64",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_FIXED32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_FIXED64: "uint64",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
}
LONGEST_PATH = 32
"""Names in one path. No real message is as deep, and protobuf itself ends at 100."""
WIDENINGS = frozenset({("int32", "int64"), ("uint32", "uint64"), ("uint32", "int64"), ("float", "double")})


class PathError(DefinitionError):
    """A path doesn't lead to a field. The message says where it ends, and what to write instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a field holds: a single value, a list ("repeated") or a map, of a scalar class, message or enum."""

    form: str
    name: str
    key: str = ""

    def __str__(self) -> str:
        if self.form == "map":
            return f"map<{self.key}, {self.name}>"
        return self.name if self.form == "single" else f"{self.form} {self.name}"


STRING = Shape(form="single", name="string")


def message_shape(message: Descriptor) -> Shape:
    """The shape of a whole message."""
    return Shape(form="single", name=message.full_name)


def field_shape(field: FieldDescriptor) -> Shape:
    """The shape of a field."""
    if is_map(field) and field.message_type is not None:
        entry = field.message_type.fields_by_name
        return Shape(form="map", key=_value_name(entry["key"]), name=_value_name(entry["value"]))
    return Shape(form="repeated" if is_repeated(field) else "single", name=_value_name(field))


def mismatch(source: Shape, target: Shape) -> str | None:
    """Why the source's value doesn't fit the target; None: it does."""
    if source.form == target.form and _fits(source.name, target.name) and _fits(source.key, target.key):
        return None
    narrows = source.form == target.form and not source.key and (target.name, source.name) in WIDENINGS
    why = ", because not all of its values would fit" if narrows else ""
    return f"a value of type {source} does not fit a field of type {target}{why}"


def is_repeated(field: FieldDescriptor) -> bool:
    """Whether the field holds a list or a map."""
    try:
        return field.is_repeated
    except AttributeError:  # protobuf before 6.31 knows only the label, which later ones deprecate
        return bool(getattr(field, "label") == FieldDescriptor.LABEL_REPEATED)  # noqa: B009  # the stubs have no label


def is_map(field: FieldDescriptor) -> bool:
    """Whether the field holds a map."""
    return is_repeated(field) and field.message_type is not None and field.message_type.GetOptions().map_entry


def find_path(message: Descriptor, path: str) -> tuple[FieldDescriptor, ...]:
    """The fields along a path; empty for the empty path.

    Raises:
        PathError: a name is no field, or a field in the middle is not a single message.
    """
    if path.count(".") >= LONGEST_PATH:
        raise PathError(f"{quote(path)} has more than {LONGEST_PATH} names, and no message is so deep; shorten it")
    found: list[FieldDescriptor] = []
    scope: Descriptor | None = message
    for name in path.split(".") if path else ():
        if scope is None or (found and is_repeated(found[-1])):
            raise PathError(
                f"{quote(path)}: {found[-1].full_name} is of type {field_shape(found[-1])}, which has no field"
                f" {quote(name)}; end the path before it"
            )
        field = scope.fields_by_name.get(name)
        if field is None:
            known = [each.name for each in scope.fields]
            instead = did_you_mean(name, known) or f"; name one of those it has: {listing(known)}"
            raise PathError(f"{quote(path)}: {scope.full_name} has no field {quote(name)}{instead}")
        found.append(field)
        scope = field.message_type
    return tuple(found)


def _fits(source: str, target: str) -> bool:
    return source == target or (source, target) in WIDENINGS


def _value_name(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        return field.message_type.full_name
    if field.enum_type is not None:
        return field.enum_type.full_name
    return SCALARS[field.type]
