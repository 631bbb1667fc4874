"""For services that take part in sagas: the server, the current step, and the ways to say no."""

from __future__ import annotations

from amends.participant.context import ActionTarget, Direction, StepContext, StepKind, current_step, step_context
from amends.participant.errors import (
    CannotListenError,
    DescriptorConflictError,
    InvalidParticipantError,
    NotStartedError,
)
from amends.participant.refusals import REFUSAL_CODES, NotDone, NotInStep, Rejected, TryLater
from amends.participant.server import ParticipantServer

__all__ = [
    "REFUSAL_CODES",
    "ActionTarget",
    "CannotListenError",
    "DescriptorConflictError",
    "Direction",
    "InvalidParticipantError",
    "NotDone",
    "NotInStep",
    "NotStartedError",
    "ParticipantServer",
    "Rejected",
    "StepContext",
    "StepKind",
    "TryLater",
    "current_step",
    "step_context",
]
