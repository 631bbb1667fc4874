"""Everything that this package raises."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ALIKE = 0.75
"""How much a name has to look like another to be taken for a slip (`difflib`'s ratio)."""

LONGEST_QUOTE = 100
"""Characters of somebody else's text that a message repeats."""

MOST_LISTED = 12
"""Names that a message lists."""

MOST_COMPARED = 100
"""Names that one that isn't there is compared with: a definition that is full of them must not cost much."""


def quote(text: str) -> str:
    """Somebody else's text as it may stand in a message: escaped, and cut where it is long."""
    return repr(clip(text))


def clip(text: str) -> str:
    """A text, cut where it is long."""
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…"


def listing(names: Iterable[str]) -> str:
    """Names as a message lists them: the first few, and how many more there are."""
    known = list(names)
    more = f" and {len(known) - MOST_LISTED} more" if len(known) > MOST_LISTED else ""
    return (", ".join(known[:MOST_LISTED]) or "none") + more


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The known name that looks most like one that isn't there; empty if none does."""
    return difflib.get_close_matches(clip(name), list(islice(known, MOST_COMPARED)), n=1, cutoff=ALIKE)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The same as a question behind the name; empty if none does."""
    return "".join(f": did you mean {near!r}?" for near in nearest(name, known))


def choices(prefix: str, numbers: Mapping[str, int]) -> str:
    """The values of an enum as a message lists them, without the prefix of their names."""
    return listing(name.removeprefix(prefix) for name, number in numbers.items() if number)


MOST_FAULTS = 200
"""Faults after which a definition is not looked at any further: nobody reads more, and each costs time."""


class DefinitionError(Exception):
    """Root of everything that this package raises."""


class DescriptorError(DefinitionError):
    """Files that don't make a schema, or a type or method that isn't in them. Correct the descriptors or the name."""


class BindingError(DefinitionError):
    """A request or an output can't be built from what the saga has. Repeating it changes nothing."""


class DamagedPayloadError(DefinitionError):
    """A payload of a saga doesn't parse although it was checked before it was stored: its bytes were changed since.
    Only a person can mend that.
    """


class PayloadError(DefinitionError):
    """A payload is of another type than the definition names, doesn't parse, or lacks what has to be in it. `path` says
    where: correct it there.
    """

    def __init__(self, message: str, *, path: str = "input") -> None:
        super().__init__(message)
        self.path = path


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a definition: where ("steps[1].action.method"), what, and what to do about it."""

    path: str
    description: str


class InvalidDefinitionError(DefinitionError):
    """A definition has faults; all of them are here. Correct them and register it again."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        super().__init__("; ".join(f"{fault.path}: {fault.description}" for fault in faults))
        self.faults = faults


class FaultList:
    """Collects the faults of one definition, each only once."""

    def __init__(self) -> None:
        self._faults: dict[Fault, None] = {}

    def __len__(self) -> int:
        return len(self._faults)

    def add(self, path: str, description: str) -> None:
        """Note that something is wrong at this path.

        Raises:
            InvalidDefinitionError: there are too many to go on.
        """
        if len(self._faults) == MOST_FAULTS:
            self._faults[Fault("", f"it has more than {MOST_FAULTS} faults; correct these first")] = None
            self.raise_if_any()
        self._faults[Fault(path, description)] = None

    def at(self, *paths: str) -> bool:
        """Whether something was noted at one of these paths."""
        return any(fault.path in paths for fault in self._faults)

    def raise_if_any(self) -> None:
        """End the checks. Faults are told in the order of the definition, those of one step as they were found.

        Raises:
            InvalidDefinitionError: something was noted.
        """
        if self._faults:
            raise InvalidDefinitionError(tuple(sorted(self._faults, key=_place)))


PARTS = ("", "name", "input_type", "output_type", "timeout", "compensation_failure_policy", "steps", "on_compensated")
PLACE = re.compile(r"(?P<part>[a-z_]*)(?:\[(?P<index>[0-9]+)\])?")


def _place(fault: Fault) -> tuple[int, int]:
    found = PLACE.match(fault.path)
    part, index = (found["part"], int(found["index"] or 0)) if found else ("", 0)
    return (PARTS.index(part) if part in PARTS else len(PARTS), index)
