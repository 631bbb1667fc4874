"""For services that take part in sagas: the server, the current step, and the ways to say no."""

from __future__ import annotations

from amends.participant.aio_server import StepInterceptor
from amends.participant.announcer import Announcer, SyncAnnouncer
from amends.participant.context import ActionTarget, Direction, StepContext, StepKind, current_step, step_context
from amends.participant.errors import (
    CannotListenError,
    DescriptorConflictError,
    InvalidParticipantError,
    NotStartedError,
)
from amends.participant.refusals import REFUSAL_CODES, NotDone, NotInStep, Rejected, TryLater
from amends.participant.server import ParticipantServer
from amends.participant.sync_server import SyncStepInterceptor

__all__ = [
    "REFUSAL_CODES",
    "ActionTarget",
    "Announcer",
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
    "StepInterceptor",
    "StepKind",
    "SyncAnnouncer",
    "SyncStepInterceptor",
    "TryLater",
    "current_step",
    "step_context",
]
