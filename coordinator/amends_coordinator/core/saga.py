"""A saga as the core sees it: its row, its intents and its dead letters, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from amends_coordinator.core.ids import DeadLetterId, IdempotencyKey, Instant, NodeId, SagaId, StepName
from amends_coordinator.core.states import (
    ACTION,
    PENDING,
    RUNNING,
    DeadLetterReason,
    Direction,
    IntentState,
    Outcome,
    Resolution,
    SagaState,
)
from amends_coordinator.core.values import quick

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amends_coordinator.core.plan import Plan

FIRST_ATTEMPTS_KEPT = 5
LAST_ATTEMPTS_KEPT = 20

NONE_LEFT_OUT: Mapping[str, int] = MappingProxyType({})
NO_LABELS: Mapping[str, str] = MappingProxyType({})

STEP_DONE = frozenset({IntentState.SUCCEEDED, IntentState.RESOLVED})
"""The states of an action whose step counts as done: it succeeded, or a person settled or waived it."""


def idempotency_key(saga_id: SagaId, step: StepName, direction: Direction) -> IdempotencyKey:
    """`{saga_id}/{step}/{action, compensation or lookup}`: the same for every attempt, across nodes and crashes
    (S2).
    """
    return IdempotencyKey(f"{saga_id}/{step}/{direction.lower()}")


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The first cause of a saga's rolling back, kept for ever. `step` is None when it was the saga as a whole."""

    step: StepName | None
    reason: str
    status_code: str
    message: str
    time: Instant


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of a call. `end_time` is None while it may be on its way; `status_code` is "" where no answer came."""

    number: int
    node: NodeId
    start_time: Instant
    end_time: Instant | None = None
    status_code: str = ""
    outcome: Outcome | None = None


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One row of the ledger: a call that may be made, and what is known of it.

    `attempt` is the number of the newest announced attempt, from 1 (0: announced, but its request could not be built).
    `next_attempt_time` is set while the next attempt waits for its time; a `PENDING` intent without it is in flight.
    `unsettled`: an attempt ended unknown and nothing has proven since what became of it.
    `refusals`, `spent_us`: what of the budget is used; `unsent_us`: for how long no attempt could be sent at all.
    `participant`: name of the participant that the newest attempt goes to; "": none serves the method, or several do.
    `key_forced`: a person had it repeated although the participant may have forgotten the key.
    `resolution`, `resolved_by`: what a named person found, where the state is `RESOLVED`.
    """

    step: StepName
    direction: Direction
    method: str
    participant: str = ""
    state: IntentState = IntentState.PENDING
    attempt: int = 0
    attempts: tuple[Attempt, ...] = ()
    attempts_left_out: Mapping[str, int] = field(default_factory=lambda: NONE_LEFT_OUT)
    next_attempt_time: Instant | None = None
    unsettled: bool = False
    refusals: int = 0
    spent_us: int = 0
    unsent_us: int = 0
    request: bytes = b""
    response: bytes | None = None
    last_error: str = ""
    last_code: str = ""
    key_forced: bool = False
    resolution: Resolution | None = None
    resolved_by: str = ""
    created_time: Instant
    updated_time: Instant

    @property
    def key(self) -> tuple[StepName, Direction]:
        """Identifies the intent in its saga."""
        return (self.step, self.direction)

    @property
    def attempt_start_time(self) -> Instant:
        """When the newest attempt was announced; the intent's own creation while there is none."""
        return self.attempts[-1].start_time if self.attempts else self.created_time

    @property
    def in_flight(self) -> bool:
        """Whether an attempt is announced and its outcome isn't recorded."""
        return self.state is PENDING and self.next_attempt_time is None

    @property
    def waiting(self) -> bool:
        """Whether the next attempt waits for its time."""
        return self.state is PENDING and self.next_attempt_time is not None


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """What only a person can decide. `step` and `direction` are None when it is the saga as a whole."""

    id: DeadLetterId
    step: StepName | None
    direction: Direction | None
    reason: DeadLetterReason
    last_error: str
    opened_time: Instant
    closed_time: Instant | None = None


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Saga:
    """One saga: its row and everything that hangs on it. `intents` are in the order in which they were announced.

    `progress_time`: when it got on last. An intent was announced for the first time or changed its state, the saga
    changed its own, or a person did something; repeating a call is none.
    """

    id: SagaId
    plan: Plan
    state: SagaState = SagaState.RUNNING
    input: bytes = b""
    output: bytes | None = None
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    failure: Failure | None = None
    point_of_no_return_passed: bool = False
    abort_requested: bool = False
    unproven: bool = False
    intents: tuple[Intent, ...] = ()
    dead_letters: tuple[DeadLetter, ...] = ()
    compensations_owed: int = 0
    due_time: Instant | None = None
    created_time: Instant
    updated_time: Instant
    progress_time: Instant
    ended_time: Instant | None = None
    deadline_time: Instant
    traceparent: str = ""
    tracestate: str = ""

    def intent(self, step: StepName, direction: Direction) -> Intent | None:
        """The intent of a step and direction, or None if it isn't announced."""
        for intent in self.intents:
            if intent.step == step and intent.direction is direction:
                return intent
        return None

    @property
    def begun(self) -> bool:
        """Whether anything was ever announced for it."""
        return bool(self.intents) or self.state is not RUNNING

    @property
    def steps_done(self) -> frozenset[StepName]:
        """The steps whose action succeeded, or was settled or waived by a person; those undone since are among them."""
        actions = (intent for intent in self.intents if intent.direction is ACTION)
        return frozenset(intent.step for intent in actions if intent.state in STEP_DONE)

    @property
    def attention_required(self) -> bool:
        """Whether at least one dead letter is open, in any state."""
        return any(letter.closed_time is None for letter in self.dead_letters)
