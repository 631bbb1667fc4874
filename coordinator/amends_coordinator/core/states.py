"""The closed sets of states, outcomes and kinds. Their values are what stands in the ledger's columns."""

from __future__ import annotations

from enum import StrEnum


class SagaState(StrEnum):
    """Where a saga stands."""

    RUNNING = "RUNNING"
    COMMITTED = "COMMITTED"
    COMPENSATING = "COMPENSATING"
    COMPENSATED = "COMPENSATED"
    COMPENSATION_FAILED = "COMPENSATION_FAILED"

    @property
    def ended(self) -> bool:
        """Whether the state never changes any more (S8)."""
        return self in (SagaState.COMMITTED, SagaState.COMPENSATED)


class IntentState(StrEnum):
    """What is known of a call."""

    PENDING = "PENDING"
    SUCCEEDED = "SUCCEEDED"
    REJECTED = "REJECTED"
    UNKNOWN = "UNKNOWN"
    NOTHING_TO_UNDO = "NOTHING_TO_UNDO"
    PARKED = "PARKED"
    RESOLVED = "RESOLVED"
    DROPPED = "DROPPED"


class Direction(StrEnum):
    """The side of a step that a call belongs to."""

    ACTION = "ACTION"
    COMPENSATION = "COMPENSATION"
    LOOKUP = "LOOKUP"


class StepKind(StrEnum):
    """What a step is with respect to the point of no return."""

    COMPENSATABLE = "COMPENSATABLE"
    READ_ONLY = "READ_ONLY"
    PIVOT = "PIVOT"
    RETRIABLE = "RETRIABLE"


class Guarantee(StrEnum):
    """What a participant's method promises about calls with the same key."""

    NONE = "NONE"
    KEY = "KEY"
    BARRIER = "BARRIER"


class FailurePolicy(StrEnum):
    """What a parked compensation means for the older ones."""

    CONTINUE = "CONTINUE"
    HALT = "HALT"


class Outcome(StrEnum):
    """What an answer proves. Unknown is a value: it is never read as a failure."""

    SUCCEEDED = "SUCCEEDED"
    REJECTED = "REJECTED"
    REJECTED_SEALED = "REJECTED_SEALED"
    UNKNOWN = "UNKNOWN"
    NOT_SENT = "NOT_SENT"
    WIRING_FAULT = "WIRING_FAULT"


class DeadLetterReason(StrEnum):
    """Why only a person can go on."""

    REFUSED = "REFUSED"
    BUDGET_SPENT = "BUDGET_SPENT"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    NO_HANDLER = "NO_HANDLER"
    ABORT_TOO_LATE = "ABORT_TOO_LATE"
    TIMED_OUT = "TIMED_OUT"
