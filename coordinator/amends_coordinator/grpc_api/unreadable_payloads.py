"""Keeps one payload that can't be shown from spoiling all that is shown beside it.

Readers like grpcurl and `buf curl` turn a whole answer into JSON or fail: one payload that they can't turn into it, and
they print nothing at all, neither the saga that a person looks for nor the ninety-nine others of a list. So such a
payload is shown as what it is, bytes of no type. There are two kinds:

* It doesn't parse as its type. Payloads are parsed before they are stored, so only a row that somebody has damaged
  holds such bytes.
* It parses, but says something that protobuf's JSON has no words for: a `Timestamp` with a billion nanoseconds, a
  `Value` without a kind, an `Any` whose bytes don't parse as the type that it names. Any participant may answer so.

Which type it should be stands before that of the bytes in the `@type`. An `Any` in a payload whose type isn't among the
definition's is left as it is: grpcurl shows its bytes.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import BytesValue

from amends_coordinator.definitions.classes import message_class
from amends_coordinator.definitions.errors import DescriptorError
from amends_coordinator.definitions.fields import is_map, is_repeated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

    from amends.v1 import saga_pb2
    from amends_coordinator.definitions.compiled import CompiledDefinition
    from amends_coordinator.definitions.schema import Schema

ANY = AnyMessage.DESCRIPTOR.full_name
_EARLIEST_S, _LATEST_S = -62_135_596_800, 253_402_300_799
_LONGEST_S = 315_576_000_000
_NANOS_PER_S = 1_000_000_000
_REVERSIBLE_PATH = re.compile(r"(?:[^A-Z_]|_[a-z])*")


def show_as_bytes(saga: saga_pb2.Saga, definition: CompiledDefinition) -> saga_pb2.Saga:
    """The saga itself, in which every payload that can't be shown has become a `google.protobuf.BytesValue`.

    For answers that people look at. What programs wait for, the answers to starts and waits, is handed on as it is.

    Args:
        saga: with its rows or without; it is changed.
        definition: knows the types.
    """
    payloads = [saga.input, saga.output]
    for intent in saga.intents:
        payloads += (intent.request, intent.response)
    for payload in payloads:
        if payload.type_url and not _can_be_shown(payload, definition.schema):
            payload.Pack(BytesValue(value=payload.value), type_url_prefix=f"{payload.type_url}/")
    return saga


class _Reader(NamedTuple):
    """What reads messages of one type, and whether one could parse and yet be none that JSON has words for."""

    parse: Callable[[bytes], Message]
    may_defy_json: bool


_readers: WeakKeyDictionary[Schema, dict[str, _Reader]] = WeakKeyDictionary()
"""Of types that were asked for; looking through one for the first time takes longer than a payload of most."""


def _reader(type_name: str, schema: Schema) -> _Reader:
    """Raises `DescriptorError`: there is no such type."""
    known = _readers.get(schema)
    if known is None:
        known = _readers[schema] = {}
    found = known.get(type_name)
    if found is None:
        descriptor = schema.message(type_name)
        may_defy_json = any(map(_is_delicate, _with_inner_types(descriptor)))
        found = known[type_name] = _Reader(message_class(descriptor).FromString, may_defy_json)
    return found


def _can_be_shown(payload: AnyMessage, schema: Schema) -> bool:
    try:
        reader = _reader(payload.type_url.rpartition("/")[2], schema)
        message = reader.parse(payload.value)
    except (DecodeError, DescriptorError):
        return False
    return not reader.may_defy_json or _fits_json(message, schema)


def _with_inner_types(descriptor: Descriptor) -> Iterator[Descriptor]:
    reached = {descriptor.full_name}
    pending = [descriptor]
    while pending:
        current = pending.pop()
        yield current
        for field in current.fields:
            if field.message_type is not None and field.message_type.full_name not in reached:
                reached.add(field.message_type.full_name)
                pending.append(field.message_type)


def _is_delicate(descriptor: Descriptor) -> bool:
    """A type that JSON has rules of its own for, or one of proto2, which has required fields and text that is none."""
    if descriptor.full_name == ANY or descriptor.full_name in _RULES:
        return True
    return FileDescriptorProto.FromString(descriptor.file.serialized_pb).syntax != "proto3"


def _fits_json(message: Message, schema: Schema) -> bool:
    pending = [message]
    while pending:
        current = pending.pop()
        rule = _RULES.get(current.DESCRIPTOR.full_name)
        if not current.IsInitialized() or (rule is not None and not rule(current)):
            return False
        if current.DESCRIPTOR.full_name == ANY:
            inner, parses = _unpacked(current, schema)
            if not parses:
                return False
            pending += inner
        for field, value in current.ListFields():
            if field.type == FieldDescriptor.TYPE_STRING:
                if not all(isinstance(text, str) for text in _values(field, value)):
                    return False
            elif field.message_type is not None:
                pending += (inner for inner in _values(field, value) if hasattr(inner, "DESCRIPTOR"))
    return True


def _values(field: FieldDescriptor, value: Any) -> Iterable[Any]:  # Any: fields hold values of every type
    values: Iterable[Any] = (value,)
    if is_repeated(field):
        values = value.values() if is_map(field) else value
    return values


def _unpacked(packed: Any, schema: Schema) -> tuple[list[Message], bool]:  # Any: of the definition's own class
    """What is in an `Any`, if its type is known here; and whether it parses as that."""
    try:
        reader = _reader(packed.type_url.rpartition("/")[2], schema)
    except DescriptorError:
        return [], True
    try:
        return [reader.parse(packed.value)], True
    except DecodeError:
        return [], False


# Any below: the messages are of the definition's own classes, which no stub describes.
def _is_in_calendar(time: Any) -> bool:
    return bool(_EARLIEST_S <= time.seconds <= _LATEST_S and 0 <= time.nanos < _NANOS_PER_S)


def _is_duration(span: Any) -> bool:
    in_range = abs(span.seconds) <= _LONGEST_S and abs(span.nanos) < _NANOS_PER_S
    return bool(in_range and span.seconds * span.nanos >= 0)


def _is_value(value: Any) -> bool:
    return value.WhichOneof("kind") is not None and math.isfinite(value.number_value)


def _is_mask(mask: Any) -> bool:
    return all(map(_REVERSIBLE_PATH.fullmatch, mask.paths))


_RULES: Mapping[str, Callable[[Any], bool]] = {
    "google.protobuf.Timestamp": _is_in_calendar,
    "google.protobuf.Duration": _is_duration,
    "google.protobuf.Value": _is_value,
    "google.protobuf.FieldMask": _is_mask,
}
"""Where a field's own type allows more than JSON does (protobuf's ProtoJSON page has the ranges)."""
