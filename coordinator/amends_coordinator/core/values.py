"""Copies of frozen values that may still be filled in, because nobody but their maker has seen them yet.

A decision makes new rows by the dozen, and `dataclasses.replace` for every column was a quarter of its cost. So a draft
copies a row once, fills the copy in, and hands it out when it is finished; from then on it is as frozen as it looks.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


class _Shape(NamedTuple):
    """How to copy a value of a class, and how to write each of its fields."""

    copy: Callable[[object], object]
    writers: Mapping[str, Callable[[object, object], None]]


def copied(value: T) -> T:
    """A copy of a dataclass with slots."""
    copy: T = _shape(type(value)).copy(value)  # type: ignore[assignment]  # of the same class: see `_copier`
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
        writers = {field.name: getattr(kind, field.name).__set__ for field in fields(kind)}
        shape = _shapes[kind] = _Shape(_copier(kind, writers), writers)
    return shape


def _copier(kind: type[object], writers: Mapping[str, Callable[[object, object], None]]) -> Callable[[object], object]:
    """A function without a loop, made from its text as `dataclasses` makes `__init__`: a loop takes three times as
    long, and every decision copies half a dozen rows.
    """
    lines = [
        "def copy_of(value):",
        "    copy = new(kind)",
        *(f"    write_{name}(copy, value.{name})" for name in writers),
        "    return copy",
    ]
    names: dict[str, Any] = {"new": object.__new__, "kind": kind}
    names |= {f"write_{name}": write for name, write in writers.items()}
    exec("\n".join(lines), names)  # noqa: S102 - the text is made of the names of our own fields
    copy: Callable[[object], object] = names["copy_of"]
    return copy
