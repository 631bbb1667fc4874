"""What a decision is: the saga after it, the rows to write, and what to do once they are durable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from amends_coordinator.core.saga import DeadLetter, Intent, Saga

if TYPE_CHECKING:
    from amends_coordinator.core.effects import Effect


@dataclass(frozen=True, slots=True)
class Records:
    """The rows that a decision adds or changes, beside the saga's own row. All of them are written together or not at
    all.

    `announced` are the intents of which a new attempt begins; those of them that are called for the first time have no
    request yet: the engine builds it before it writes them.
    """

    intents: tuple[Intent, ...] = ()
    dead_letters: tuple[DeadLetter, ...] = ()
    announced: tuple[Intent, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write: the saga's row stays as it is, too."""
        return not (self.intents or self.dead_letters)


@dataclass(frozen=True, slots=True)
class Decision:
    """`saga` after the event; `records` to make durable first; `effects` to carry out afterwards (see effects.py)."""

    saga: Saga
    records: Records
    effects: tuple[Effect, ...]
    changed: bool
    """Whether the saga's row or any other has to be written."""
