"""The closed sets of states, outcomes and kinds. Their values are what stands in the ledger's columns."""

from __future__ import annotations

from enum import StrEnum


class Word(StrEnum):
    """A word of one of the sets. Hashed like the string that it is: words are keys of tables that are read all the
    time,
    and the hash that `Enum` brings along is a function in Python.
    """

    __hash__ = str.__hash__


class SagaState(Word):
    """Where a saga stands."""

    RUNNING = "RUNNING"
    COMMITTED = "COMMITTED"
    COMPENSATING = "COMPENSATING"
    COMPENSATED = "COMPENSATED"
    COMPENSATION_FAILED = "COMPENSATION_FAILED"

    @property
    def ended(self) -> bool:
        """Whether the state never changes any more (S8)."""
        return self in _ENDS


_ENDS = frozenset({SagaState.COMMITTED, SagaState.COMPENSATED})


class IntentState(Word):
    """What is known of a call."""

    PENDING = "PENDING"
    SUCCEEDED = "SUCCEEDED"
    REJECTED = "REJECTED"
    UNKNOWN = "UNKNOWN"
    NOTHING_TO_UNDO = "NOTHING_TO_UNDO"
    PARKED = "PARKED"
    RESOLVED = "RESOLVED"
    DROPPED = "DROPPED"


class Direction(Word):
    """The side of a step that a call belongs to."""

    ACTION = "ACTION"
    COMPENSATION = "COMPENSATION"
    LOOKUP = "LOOKUP"


class StepKind(Word):
    """What a step is with respect to the point of no return."""

    COMPENSATABLE = "COMPENSATABLE"
    READ_ONLY = "READ_ONLY"
    PIVOT = "PIVOT"
    RETRIABLE = "RETRIABLE"


class Guarantee(Word):
    """What a participant's method promises about calls with the same key."""

    NONE = "NONE"
    KEY = "KEY"
    BARRIER = "BARRIER"


class FailurePolicy(Word):
    """What a parked compensation means for the older ones."""

    CONTINUE = "CONTINUE"
    HALT = "HALT"


class OnUnknown(Word):
    """What is decided about a compensatable step when nothing more can be learnt about its action."""

    COMPENSATE = "COMPENSATE"
    PARK = "PARK"


class Resolution(Word):
    """What a named person found about a call that only a person could decide."""

    HAPPENED = "HAPPENED"
    DID_NOT_HAPPEN = "DID_NOT_HAPPEN"
    UNDONE_BY_HAND = "UNDONE_BY_HAND"


class Outcome(Word):
    """What an answer proves. Unknown is a value: it is never read as a failure."""

    SUCCEEDED = "SUCCEEDED"
    REJECTED = "REJECTED"
    REJECTED_SEALED = "REJECTED_SEALED"
    UNKNOWN = "UNKNOWN"
    NOT_SENT = "NOT_SENT"
    WIRING_FAULT = "WIRING_FAULT"


class DeadLetterReason(Word):
    """Why only a person can go on."""

    REFUSED = "REFUSED"
    BUDGET_SPENT = "BUDGET_SPENT"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    NO_HANDLER = "NO_HANDLER"
    ABORT_TOO_LATE = "ABORT_TOO_LATE"
    TIMED_OUT = "TIMED_OUT"
    TERMINATED = "TERMINATED"
    UNREADABLE = "UNREADABLE"
    DRIVER_FAILED = "DRIVER_FAILED"


ACTION = Direction.ACTION
PENDING = IntentState.PENDING
RUNNING = SagaState.RUNNING
"""What is asked for many times at every event. To look a member up in its class takes five times as long as a name of a
module: an `Enum` asks two classes, and a function for what neither has.
"""
