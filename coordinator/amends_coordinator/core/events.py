"""What can happen to a saga. Every event carries the moment at which it is decided: the core has no clock of its
own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from amends_coordinator.core.ids import Instant, NodeId, StepName
from amends_coordinator.core.states import Direction
from amends_coordinator.core.values import quick

if TYPE_CHECKING:
    from amends_coordinator.core.answer import Answer


@quick
@dataclass(frozen=True, slots=True)
class Moment:
    """When, at which incarnation, and with which random fraction (from 0 to 1, for jitter) an event is decided.

    `abort_grace_us`: how long calls in flight may go on when their saga begins to roll back.
    """

    now: Instant
    node: NodeId
    fraction: float = 0.0
    abort_grace_us: int = 5_000_000


@quick
@dataclass(frozen=True, slots=True)
class Started:
    """The saga is new: nothing is announced yet."""

    at: Moment


@quick
@dataclass(frozen=True, slots=True)
class Adopted:
    """An incarnation takes the saga over. What is in flight was begun by another one: its end will never be heard."""

    at: Moment


@quick
@dataclass(frozen=True, slots=True)
class Woken:
    """The saga's due time has come."""

    at: Moment


@quick
@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt of a call has ended with an answer, or with none."""

    at: Moment
    step: StepName
    direction: Direction
    attempt: int
    answer: Answer


@quick
@dataclass(frozen=True, slots=True)
class BindingFailed:
    """The request of an intent that a decision announced can't be built; nothing was sent.

    `beside`: the other calls that the decision announces. They weren't sent either.
    """

    at: Moment
    step: StepName
    direction: Direction
    message: str
    beside: tuple[tuple[StepName, Direction], ...] = ()


@quick
@dataclass(frozen=True, slots=True)
class DriverFailed:
    """The coordinator itself failed on this saga again and again: a person has to be told."""

    at: Moment
    message: str


Event: TypeAlias = Started | Adopted | Woken | AttemptEnded | BindingFailed | DriverFailed
