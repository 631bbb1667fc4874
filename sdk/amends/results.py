"""How a saga ended, as values made for `match`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

Out_co = TypeVar("Out_co", bound=Message | None, covariant=True)


@dataclass(frozen=True, slots=True)
class SagaFailure:
    """The first cause of a saga's rolling back."""

    step: str
    """The step that was the cause; empty: the saga as a whole, for example its timeout."""
    reason: str
    """A short reason, for example "CARD_DECLINED" as the participant gave it, or "TIMED_OUT"."""
    status_code: str
    """The participant's gRPC status code by name; empty: no answer was the cause."""
    message: str
    """What went wrong, in words."""

    def __str__(self) -> str:
        where = f"step {self.step!r}: " if self.step else ""
        return f"{where}{self.message or 'no message'} [{self.reason or self.status_code or 'UNKNOWN'}]"


@dataclass(frozen=True, slots=True)
class OpenDeadLetter:
    """What only a person can decide, still undecided."""

    dead_letter_id: str
    """Its id, for the operator's commands."""
    step: str
    """The step; empty: the whole saga."""
    direction: str
    """"ACTION", "COMPENSATION" or "LOOKUP"; empty: the whole saga."""
    reason: str
    """Why a person is needed, for example "REFUSED" or "BUDGET_SPENT" (`amends.v1.DeadLetter.Reason`)."""
    last_error: str
    """What the last attempt said."""


@dataclass(frozen=True, slots=True)
class Committed(Generic[Out_co]):
    """Every step succeeded, or was resolved by a named person."""

    saga_id: str
    """The saga's id."""
    output: Out_co
    """The saga's output; None if its definition has none."""
    purged: bool = False
    """Whether it ended so long ago that the coordinator has kept only how. Then `output` is None because there never
    was one: an output that is gone is an `OutputPurgedError`.
    """


@dataclass(frozen=True, slots=True)
class Compensated:
    """The saga was rolled back: whatever happened, or may have happened, is undone."""

    saga_id: str
    """The saga's id."""
    reason: str
    """Why, in one word: `failure.reason`."""
    failure: SagaFailure
    """Why, in full."""
    unproven: bool
    """Whether this end rests on an assumption that no participant has proven."""
    purged: bool = False
    """Whether it ended so long ago that the coordinator has kept only how; then `failure.message` is empty."""


@dataclass(frozen=True, slots=True)
class CompensationFailed:
    """The saga rolls back, and nothing can go on without a person."""

    saga_id: str
    """The saga's id."""
    reason: str
    """Why it rolls back, in one word: `failure.reason`."""
    failure: SagaFailure
    """Why it rolls back, in full."""
    dead_letters: tuple[OpenDeadLetter, ...]
    """What the person has to settle, oldest first."""
