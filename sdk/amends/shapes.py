"""What fits into a field, said briefly: enough to refuse an obvious mismatch on the line that makes it.

The coordinator's check at registration is the stricter one and the last word; nothing that it accepts is refused here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf.descriptor import FieldDescriptor

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

_FLOATS = frozenset({FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT})
_PLAIN = {
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """The kind of a value, and the message type if it is one message whose fields can be named."""

    text: str
    message: Descriptor | None = None

    def fits(self, other: Shape) -> bool:
        """Whether a value of this shape can be copied into a field of the other one."""
        return self.text == other.text


STRING = Shape("string")


def shape_of_message(descriptor: Descriptor) -> Shape:
    """The shape of a whole message."""
    return Shape(f"message {descriptor.full_name}", descriptor)


def shape_of_field(field: FieldDescriptor) -> Shape:
    """The shape of a field's value."""
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        return Shape(f"map from {_single(key).text} to {_single(value).text}")
    single = _single(field)
    return Shape(f"repeated {single.text}") if is_repeated(field) else single


def is_repeated(field: FieldDescriptor) -> bool:
    """Whether a field is a list or a map; protobuf has said so in two ways since 5.29."""
    newer = getattr(field, "is_repeated", None)
    return bool(getattr(field, "label", None) == FieldDescriptor.LABEL_REPEATED if newer is None else newer)


def _single(field: FieldDescriptor) -> Shape:
    if field.message_type is not None:
        return shape_of_message(field.message_type)
    if field.enum_type is not None:
        return Shape(f"enum {field.enum_type.full_name}")
    if field.type in _FLOATS:
        return Shape("floating-point number")
    return Shape(_PLAIN.get(field.type, "integer"))
