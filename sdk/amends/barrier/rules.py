"""What a barrier does with a call, as tables over what it finds of the key: pure, and complete.

A key's row is claimed first, by inserting it; who can't insert it finds what stands there. The tables say what follows,
for each question that a call asks:

* an action asks about its own row;
* a compensation asks about its own row (`UNDO`), then, where it was this participant that was called with the action,
  about the action's (`UNDONE_ACTION`), whose absence it turns into a mark: a late action must not run any more;
* a lookup asks about the action's row, and leaves the same mark, except for a retriable step, which is never refused.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from amends.participant.context import Direction, StepKind

if TYPE_CHECKING:
    from collections.abc import Mapping


class Found(StrEnum):
    """What is known of a key: the state of its row, or that there was none."""

    NEVER = "never"
    """No row: it did not run, and now is the caller's."""
    RUNNING = "running"
    """Claimed by a transaction that did not end. Nobody else sees that, unless somebody committed in between."""
    STARTED = "started"
    """An effect outside the database was begun; whether it happened, only the provider knows."""
    DONE = "done"
    """It ran, and its response is in the row."""
    REJECTED = "rejected"
    """It was refused for good, and its refusal is in the row."""
    NULL = "null"
    """A mark: it did not run and never will."""
    UNDONE = "undone"
    """An effect's compensation has begun: whatever became of the action, it never runs again."""


class Do(StrEnum):
    """What a barrier does."""

    RUN = "run"
    """The body runs."""
    RESUME = "resume"
    """The body runs if it is an effect's, which can ask its provider; else nobody can tell: ABORTED."""
    REPEAT = "repeat"
    """OK with the response in the row."""
    REFUSE = "refuse"
    """The refusal in the row once more, sealed."""
    REFUSE_LATE = "refuse_late"
    """FAILED_PRECONDITION, sealed: an action that hung until its compensation or its lookup had come."""
    NOTHING = "nothing"
    """OK with an empty response: there is nothing to undo."""
    ABSENT = "absent"
    """NOT_FOUND, sealed."""
    ABSENT_SO_FAR = "absent_so_far"
    """NOT_FOUND, not sealed: it may still come."""
    WAIT = "wait"
    """ABORTED: a copy is running."""


class Question(StrEnum):
    """Who asks about which row."""

    ACTION = "action"
    UNDO = "undo"
    UNDONE_ACTION = "undone_action"
    LOOKUP = "lookup"
    RETRIABLE_LOOKUP = "retriable_lookup"


RULES: Mapping[Question, Mapping[Found, Do]] = MappingProxyType(
    {
        Question.ACTION: {
            Found.NEVER: Do.RUN,
            Found.RUNNING: Do.WAIT,
            Found.STARTED: Do.RESUME,
            Found.DONE: Do.REPEAT,
            Found.REJECTED: Do.REFUSE,
            Found.NULL: Do.REFUSE_LATE,
            Found.UNDONE: Do.REFUSE_LATE,
        },
        # Nothing else is ever written for a compensation: its refusals are not recorded.
        Question.UNDO: {
            Found.NEVER: Do.RUN,
            Found.RUNNING: Do.WAIT,
            Found.STARTED: Do.RESUME,
            Found.DONE: Do.REPEAT,
        },
        Question.UNDONE_ACTION: {
            Found.NEVER: Do.NOTHING,
            Found.RUNNING: Do.WAIT,
            Found.STARTED: Do.RESUME,
            Found.DONE: Do.RUN,
            Found.REJECTED: Do.NOTHING,
            Found.NULL: Do.NOTHING,
            Found.UNDONE: Do.RESUME,
        },
        Question.LOOKUP: {
            Found.NEVER: Do.ABSENT,
            Found.RUNNING: Do.WAIT,
            Found.STARTED: Do.RESUME,
            Found.DONE: Do.REPEAT,
            Found.REJECTED: Do.ABSENT,
            Found.NULL: Do.ABSENT,
            Found.UNDONE: Do.RESUME,
        },
        Question.RETRIABLE_LOOKUP: {
            Found.NEVER: Do.ABSENT_SO_FAR,
            Found.RUNNING: Do.WAIT,
            Found.STARTED: Do.RESUME,
            Found.DONE: Do.REPEAT,
            Found.REJECTED: Do.ABSENT_SO_FAR,
            Found.NULL: Do.ABSENT_SO_FAR,
            Found.UNDONE: Do.RESUME,
        },
    }
)
"""What is not in a table can't be: meeting it is an error."""


def what_to_do(question: Question, found: Found) -> Do:
    """The rule for what was found.

    Raises:
        ValueError: nothing of ours writes such a row.
    """
    try:
        return RULES[question][found]
    except KeyError:
        raise ValueError(f"a row of state {found} can't stand where {question} asks") from None


def lookup_of(kind: StepKind) -> Question:
    """The question that a lookup of a step asks."""
    return Question.RETRIABLE_LOOKUP if kind is StepKind.RETRIABLE else Question.LOOKUP


def is_recorded(direction: Direction, kind: StepKind) -> bool:
    """Whether a refusal is final: written down, repeated and sealed."""
    return direction is Direction.ACTION and kind in {StepKind.COMPENSATABLE, StepKind.PIVOT}
