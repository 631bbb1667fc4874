"""What a person who looks on is told: one value for each thing that happens, without any payload.

Texts in them come from participants and initiators: whoever prints them escapes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from amends_coordinator.core.states import DeadLetterReason, Direction, IntentState, Outcome, SagaState


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaBegan:
    """A saga is durable."""

    saga_id: str
    definition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnded:
    """An attempt ended, or what is known of a call changed.

    `outcome` is that of the newest attempt, None where none was made. `in_doubt`: an attempt ended unknown, and nothing
    has proven since what became of it. `again_in_us`: when the call is repeated; None where it isn't.
    """

    saga_id: str
    step: str
    direction: Direction
    method: str
    state: IntentState
    outcome: Outcome | None
    attempt: int
    took_us: int
    status_code: str
    said: str
    in_doubt: bool
    again_in_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRepeated:
    """What became of the attempt before is not known, because its coordinator is gone: called again with its key."""

    saga_id: str
    step: str
    direction: Direction
    method: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallWaits:
    """A call can't be sent; told once, until that changes. `serving`: the services of the participants that are here,
    if nobody among them serves this one.
    """

    saga_id: str
    step: str
    direction: Direction
    method: str
    why: str
    nobody_serves_it: bool
    serving: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterOpened:
    """A person is needed. `step` and `direction` are None where it is the saga as a whole."""

    saga_id: str
    step: str | None
    direction: Direction | None
    dead_letter_id: str
    reason: DeadLetterReason
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaMoved:
    """A saga's state changed; `took_us` since it began. The failure is the first cause of its rolling back, "" and None
    where it has none.
    """

    saga_id: str
    state: SagaState
    took_us: int
    unproven: bool
    failed_step: str | None
    failure_reason: str
    failure_message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParticipantCame:
    """An instance of a participant is announced, for the first time or at another address."""

    participant: str
    address: str
    services: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParticipantWent:
    """An instance took itself out, or (`unheard`) its lease ended without a word."""

    participant: str
    address: str
    unheard: bool


Happening: TypeAlias = (
    SagaBegan | CallEnded | CallRepeated | CallWaits | DeadLetterOpened | SagaMoved | ParticipantCame | ParticipantWent
)
