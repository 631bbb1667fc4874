"""Frozen values that are made and copied quickly, and filled in while nobody but their maker has seen them.

Every decision makes values by the dozen. `dataclasses` writes each field of a frozen one through
`object.__setattr__`, which takes three times as long as writing it through its slot, and `dataclasses.replace` makes
the whole value anew for every column that changes. So the values that a saga on its way makes are declared `quick`, and
a draft copies a row once, fills the copy in, and hands it out when it is finished; from then on it is as frozen as it
looks. Where values are made at every event, they are made by a `maker`, and copied with some fields anew by a
`copier`.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from _typeshed import DataclassInstance

P = ParamSpec("P")
T = TypeVar("T")

fill_field = object.__setattr__
"""`fill` for one field of a value that nobody else has seen yet."""

_copiers: dict[type[object], Callable[[Any], Any]] = {}  # Any: each takes and gives values of its own class


def quick(kind: type[T]) -> type[T]:
    """A frozen dataclass with slots, made three times as fast by the same calls, and ready to be `copied`."""
    found = fields(cast("type[DataclassInstance]", kind))  # a checker doesn't see a dataclass yet while it is decorated
    initialise = _compiled(kind, _initialiser(found), "initialise")
    setattr(kind, "__init__", initialise)  # noqa: B010 - a checker takes a plain assignment for a mistake
    _copiers[kind] = _compiled(kind, _copier(found), "copy_of")
    return kind


def copied(value: T) -> T:
    """A copy of a `quick` value, to be filled in."""
    copy: T = _copiers[type(value)](value)
    return copy


def maker(kind: Callable[P, T]) -> Callable[P, T]:
    """A function that makes values of a `quick` class, with the arguments of the class, in a third of the time."""
    text = _maker(fields(cast("type[DataclassInstance]", kind)))
    return cast("Callable[P, T]", _compiled(cast("type[T]", kind), text, "make"))


def copier(kind: type[T], *names: str) -> Callable[..., T]:
    """A function that copies values of a `quick` class with some fields anew: its arguments are the value, and the
    fields' new contents in the order of `names`.
    """
    text = _copier(fields(cast("type[DataclassInstance]", kind)), names)
    return cast("Callable[..., T]", _compiled(kind, text, "copy_of"))


def writers(kind: type[object]) -> dict[str, Callable[[Any, Any], None]]:
    """`fill_field` for each field of a `quick` class, by name, in half the time. Any: each takes its own."""
    return {field.name: getattr(kind, field.name).__set__ for field in fields(cast("type[DataclassInstance]", kind))}


def fill(value: object, changes: Mapping[str, object]) -> None:
    """Write fields of a value that nobody else has seen yet.

    Args:
        value: a copy or a new value of one's own; never one that was handed out.
        changes: new values by field name.
    """
    for name, content in changes.items():
        fill_field(value, name, content)


def _compiled(kind: type[object], text: list[str], name: str) -> Callable[..., Any]:
    """The function that a text about a class defines. Any: what the texts name, and what the functions answer."""
    found = fields(cast("type[DataclassInstance]", kind))
    opened = type(f"Open{kind.__name__}", (), {"__slots__": tuple(field.name for field in found)})
    names: dict[str, Any] = {"new": object.__new__, "opened": opened, "kind": kind}
    for field in found:
        names[f"write_{field.name}"] = getattr(kind, field.name).__set__
        names[f"default_{field.name}"] = field.default
        names[f"make_{field.name}"] = field.default_factory
    exec("\n".join(text), names)  # noqa: S102 - the text is made of the names of our own fields
    return cast("Callable[..., Any]", names[name])


def _initialiser(found: tuple[Field[Any], ...]) -> list[str]:
    """The text of an `__init__`, made as `dataclasses` makes its own. Any: whatever the fields hold."""
    return [
        f"def initialise({', '.join(['self', *_parameters(found)])}):",
        *(f"    write_{field.name}(self, {_given(field)})" for field in found),
    ]


def _maker(found: tuple[Field[Any], ...]) -> list[str]:
    """The text of a function that makes a value as `_copier` copies one. Any: as above."""
    return [
        f"def make({', '.join(_parameters(found))}):",
        "    made = new(opened)",
        *(f"    made.{field.name} = {_given(field)}" for field in found),
        "    made.__class__ = kind",
        "    return made",
    ]


def _parameters(found: tuple[Field[Any], ...]) -> list[str]:
    positional = [_parameter(field) for field in found if not field.kw_only]
    by_name = [_parameter(field) for field in found if field.kw_only]
    return [*positional, *(["*"] if by_name else []), *by_name]


def _parameter(field: Field[Any]) -> str:
    optional = field.default is not MISSING or field.default_factory is not MISSING
    return f"{field.name}=default_{field.name}" if optional else field.name


def _given(field: Field[Any]) -> str:
    name = field.name
    return name if field.default_factory is MISSING else f"make_{name}() if {name} is default_{name} else {name}"


def _copier(found: tuple[Field[Any], ...], anew: Sequence[str] = ()) -> list[str]:
    """The text of a function without a loop, which takes three times as long. The copy is of a class with the same
    slots that isn't frozen, and becomes what it is called when it is filled: that halves it once more.
    """
    contents = {field.name: field.name if field.name in anew else f"value.{field.name}" for field in found}
    return [
        f"def copy_of({', '.join(['value', *anew])}):",
        "    copy = new(opened)",
        *(f"    copy.{name} = {content}" for name, content in contents.items()),
        "    copy.__class__ = kind",
        "    return copy",
    ]
