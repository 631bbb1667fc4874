"""What a list of sagas is asked for: one value that every adapter of the ledger understands in the same way."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from amends_coordinator.core.states import SagaState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amends_coordinator.core.ids import DefinitionVersion, Instant, SagaId

    Position = tuple[Instant, SagaId]
    """Where a saga stands in a list, newest first: when it was started, then its id."""

ROLLING_BACK = frozenset({SagaState.COMPENSATING, SagaState.COMPENSATION_FAILED})
"""The only states in which compensations are owed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """From one instant to another, both included. None: open at this side."""

    earliest: Instant | None = None
    latest: Instant | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether it has an end at all."""
        return self.earliest is not None or self.latest is not None

    def holds(self, instant: Instant) -> bool:
        """Whether the instant lies in it."""
        after = self.earliest is None or instant >= self.earliest
        return after and (self.latest is None or instant <= self.latest)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBy:
    """The sagas that a participant serves: those of definitions with a step of its, and those whose input chose it.

    `names`: definitions of which it serves every version; `versions` (name, version): of the others, those that it
    serves.
    """

    participant: str
    names: frozenset[str] = frozenset()
    versions: frozenset[tuple[str, DefinitionVersion]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaFilter:
    """Lets a saga through that passes everything which is set; a new one lets all through.

    `definition_version` needs `definition_name`. `stalled_since`: something is left to do, and it hasn't got on later
    than this.
    """

    states: frozenset[SagaState] = frozenset()
    definition_name: str = ""
    definition_version: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    attention_required: bool = False
    unproven: bool = False
    compensations_owed: bool = False
    served_by: ServedBy | None = None
    created: Span = Span()
    updated: Span = Span()
    stalled_since: Instant | None = None

    @property
    def possible_states(self) -> frozenset[SagaState]:
        """The states that a saga which is let through can have."""
        states = self.states or frozenset(SagaState)
        return states & ROLLING_BACK if self.compensations_owed else states

    @property
    def latest_created_time(self) -> Instant | None:
        """When a saga was started at the latest: none got on, or was written, before it was started."""
        bounds = (self.created.latest, self.updated.latest, self.stalled_since)
        return min((bound for bound in bounds if bound is not None), default=None)
