"""Copies of frozen values that may still be filled in, because nobody but their maker has seen them yet.

A decision makes new rows by the dozen, and `dataclasses.replace` for every column was a quarter of its cost. So a draft
copies a row once, fills the copy in, and hands it out when it is finished; from then on it is as frozen as it looks.
"""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


class _Shape(NamedTuple):
    """How to read all fields of a class at once, and how to write each."""

    read: Callable[[object], tuple[object, ...]]
    writers: Mapping[str, Callable[[object, object], None]]


def copied(value: T) -> T:
    """A copy of a dataclass with slots and more than one field."""
    kind = type(value)
    shape = _shape(kind)
    copy = object.__new__(kind)
    for write, content in zip(shape.writers.values(), shape.read(value), strict=True):
        write(copy, content)
    return copy


def fill(value: DataclassInstance, changes: Mapping[str, object]) -> None:
    """Write fields of a value that nobody else has seen yet.

    Args:
        value: a copy or a new value of one's own; never one that was handed out.
        changes: new values by field name.
    """
    writers = _shape(type(value)).writers
    for name, content in changes.items():
        writers[name](value, content)


_shapes: dict[type[object], _Shape] = {}


def _shape(kind: type[DataclassInstance]) -> _Shape:
    shape = _shapes.get(kind)
    if shape is None:
        names = [field.name for field in fields(kind)]
        shape = _shapes[kind] = _Shape(attrgetter(*names), {name: getattr(kind, name).__set__ for name in names})
    return shape
