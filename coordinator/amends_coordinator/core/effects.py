"""What is to be done after a decision, and what must be durable before it.

None of the effects of a decision may be carried out before its records are durable (S1): the intent comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from amends_coordinator.core.ids import Instant, StepName
from amends_coordinator.core.saga import DeadLetter
from amends_coordinator.core.states import Direction, SagaState
from amends_coordinator.core.values import quick


@quick
@dataclass(frozen=True, slots=True)
class CallAction:
    """Call the step's action. The intent with this attempt number must be durable before."""

    step: StepName
    attempt: int
    deadline_time: Instant


@quick
@dataclass(frozen=True, slots=True)
class CallCompensation:
    """Call the step's compensation. The intent with this attempt number must be durable before."""

    step: StepName
    attempt: int
    deadline_time: Instant


@quick
@dataclass(frozen=True, slots=True)
class CallLookup:
    """Ask what became of the step's action. The intent with this attempt number must be durable before."""

    step: StepName
    attempt: int
    deadline_time: Instant


@quick
@dataclass(frozen=True, slots=True)
class CancelCall:
    """Stop waiting for a call that is in flight; its intent must be durably dropped before."""

    step: StepName
    direction: Direction


@quick
@dataclass(frozen=True, slots=True)
class WakeAt:
    """Feed `Woken` back at this time. The saga's `due_time` must be durable before, so that it happens after a crash
    too.
    """

    time: Instant


@quick
@dataclass(frozen=True, slots=True)
class Park:
    """A person is needed; the dead letter must be durable before anybody is told."""

    letter: DeadLetter


@quick
@dataclass(frozen=True, slots=True)
class Finish:
    """The saga has ended or can't go on without a person; its state must be durable before anybody is told (S11)."""

    state: SagaState


@quick
@dataclass(frozen=True, slots=True)
class IgnoreLateAnswer:
    """The answer belongs to a call that was closed already: drop and count it. Nothing was recorded."""

    step: StepName
    direction: Direction
    attempt: int


Call: TypeAlias = CallAction | CallCompensation | CallLookup
Effect: TypeAlias = Call | CancelCall | WakeAt | Park | Finish | IgnoreLateAnswer

CALL_OF: dict[Direction, type[CallAction] | type[CallCompensation] | type[CallLookup]] = {
    Direction.ACTION: CallAction,
    Direction.COMPENSATION: CallCompensation,
    Direction.LOOKUP: CallLookup,
}

DIRECTION_OF: dict[type[CallAction] | type[CallCompensation] | type[CallLookup], Direction] = {
    call: direction for direction, call in CALL_OF.items()
}
