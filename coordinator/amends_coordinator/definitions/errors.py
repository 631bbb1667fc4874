"""Everything that this package raises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST_QUOTE = 100
"""Characters of somebody else's text that a message repeats."""

MOST_LISTED = 12
"""Names that a message lists."""


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


class DefinitionError(Exception):
    """Root of everything that this package raises."""


class DescriptorError(DefinitionError):
    """Files that don't make a schema, or a type or method that isn't in them. Correct the descriptors or the name."""


class BindingError(DefinitionError):
    """A request or an output can't be built from what the saga has. Repeating it changes nothing."""


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
    """Collects the faults of one definition in the order in which they are found, each only once."""

    def __init__(self) -> None:
        self._faults: dict[Fault, None] = {}

    def __len__(self) -> int:
        return len(self._faults)

    def add(self, path: str, description: str) -> None:
        """Note that something is wrong at this path."""
        self._faults[Fault(path, description)] = None

    def at(self, *paths: str) -> bool:
        """Whether something was noted at one of these paths."""
        return any(fault.path in paths for fault in self._faults)

    def raise_if_any(self) -> None:
        """End the checks.

        Raises:
            InvalidDefinitionError: something was noted.
        """
        if self._faults:
            raise InvalidDefinitionError(tuple(self._faults))
