"""Closures that copy one field: all that can be decided from descriptors is decided once, when they are made.

A source that is absent (a field with presence that isn't set, or anything inside an unset message) leaves its target as
it was. Messages of one definition come from one pool, so whole messages are copied without going by bytes.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from google.protobuf.message import Message

from amends_coordinator.definitions.fields import is_map, is_repeated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from google.protobuf.descriptor import FieldDescriptor

# Any: what a field holds is known to descriptors only; registration has compared both sides.
Value: TypeAlias = Any
Move: TypeAlias = "Callable[[Message, Message], None]"
Read: TypeAlias = "Callable[[Message], Value]"
Write: TypeAlias = "Callable[[Message, Value], None]"

ABSENT = object()
"""What a read answers where there is nothing to copy."""


def move(source: Sequence[FieldDescriptor], target: Sequence[FieldDescriptor]) -> Move:
    """Copies the field at the end of `source` (empty: the whole message) to the one at the end of `target`."""
    if len(source) == 1 and len(target) == 1 and _is_plain(source[0]) and not target[0].message_type:
        return _plain_move(source[0].name, target[0].name)
    read, write = reader(source), writer(target)

    def copy(origin: Message, built: Message) -> None:
        value = read(origin)
        if value is not ABSENT:
            write(built, value)

    return copy


def reader(path: Sequence[FieldDescriptor]) -> Read:
    """Reads the field at the end of a path, or `ABSENT`."""
    if not path:
        return lambda origin: origin
    *parents, last = [field.name for field in path]
    checked = path[-1].has_presence

    def read(origin: Message) -> Value:
        for name in parents:
            if not origin.HasField(name):
                return ABSENT
            origin = getattr(origin, name)
        if checked and not origin.HasField(last):
            return ABSENT
        return getattr(origin, last)

    return read


def writer(path: Sequence[FieldDescriptor]) -> Write:
    """Writes the field at the end of a path over whatever it held; the messages on the way come into being."""
    last = path[-1]
    put = _putter(last)
    if len(path) == 1:
        return put
    holder = attrgetter(".".join(field.name for field in path[:-1]))
    return lambda built, value: put(holder(built), value)


def clearer(path: Sequence[FieldDescriptor]) -> Callable[[Message], None]:
    """Clears the field at the end of a path; messages on the way that aren't set stay so."""
    *parents, last = [field.name for field in path]

    def clear(built: Message) -> None:
        for name in parents:
            if not built.HasField(name):
                return
            built = getattr(built, name)
        built.ClearField(last)

    return clear


def _is_plain(field: FieldDescriptor) -> bool:
    return not (field.has_presence or is_repeated(field) or field.message_type)


def _plain_move(source: str, target: str) -> Move:
    read = attrgetter(source)
    return lambda origin, built: setattr(built, target, read(origin))


def _putter(field: FieldDescriptor) -> Write:
    name = field.name
    if is_map(field):
        return _map_putter(field)
    if is_repeated(field):
        return _list_putter(name)
    if field.message_type is not None:
        return lambda built, value: getattr(built, name).CopyFrom(value)
    return lambda built, value: setattr(built, name, value)


def _list_putter(name: str) -> Write:
    def put(built: Message, value: Value) -> None:
        built.ClearField(name)
        getattr(built, name).extend(value)

    return put


def _map_putter(field: FieldDescriptor) -> Write:
    name = field.name
    entry = field.message_type
    holds_messages = entry is not None and entry.fields_by_name["value"].message_type is not None

    def put(built: Message, value: Value) -> None:
        built.ClearField(name)
        target = getattr(built, name)
        for key in value:
            if holds_messages:
                target[key].CopyFrom(value[key])
            else:
                target[key] = value[key]

    return put
