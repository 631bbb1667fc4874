"""Participants as the explorer models them: what they answer, and what is really the case.

Of each step the world knows how often its effect happened, how much of it stands, how often its compensation ran, what
the participant remembers, and how many copies of calls are still on their way. A call that ended unknown leaves a copy:
whether it ran before, runs later, or never arrives is all the same to who waits for it, and all of it is tried.

A *barrier* keeps the barrier's rules; with a *key* the participant runs an action once per key and seals nothing;
with *nothing* whatever arrives runs. A clear refusal by one without a barrier is believed: no copy of it arrives later.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from amends_coordinator.core.answer import Answer
from amends_coordinator.core.states import Direction, Guarantee, Outcome, StepKind
from tests.properties.answers import (
    MISWIRED,
    NOT_FOUND,
    NOT_FOUND_SEALED,
    NOT_SENT,
    OK,
    OK_AND_ABORT,
    REFUSED,
    REFUSED_SEALED,
    UNKNOWN,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amends_coordinator.core.plan import StepPlan
    from tests.properties.explore.shapes import Small

ALREADY_DONE = Answer(outcome=Outcome.REJECTED, status_code="ALREADY_EXISTS", message="it is there already")
TOO_OLD = Answer(outcome=Outcome.UNKNOWN, status_code="ABORTED", message="too old to know")
MOST = 2
"""Counts end here: twice is as wrong as thrice."""


class Memory(IntEnum):
    """What a participant remembers of a step's key."""

    NOTHING = 0
    DONE = 1
    SEALED = 2
    UNDONE = 3
    FORGOTTEN = 4


class Truth(NamedTuple):
    """What is the case about one step. `actions`, `undos`, `asks`: copies of calls that are still on their way."""

    memory: Memory = Memory.NOTHING
    effects: int = 0
    standing: int = 0
    undo_runs: int = 0
    actions: int = 0
    undos: int = 0
    asks: int = 0


class Participant:
    """Who performs one step. Truths are numbered; all answers are kept, because each is asked for again and again."""

    def __init__(self, step: StepPlan, small: Small) -> None:
        self.step = step
        self.small = small
        self.truths: list[Truth] = []
        self._numbers: dict[Truth, int] = {}
        self._responses: dict[tuple[int, Direction], tuple[tuple[Answer, int], ...]] = {}
        self._arrivals: dict[int, tuple[tuple[str, int], ...]] = {}
        self._changes: dict[tuple[int, str], int] = {}
        self.start = self._number(Truth())

    def responses(self, number: int, direction: Direction) -> tuple[tuple[Answer, int], ...]:
        """Every answer that a call in flight may get now, with the truth after it."""
        found = self._responses.get((number, direction))
        if found is None:
            truth = self.truths[number]
            found = tuple((answer, self._number(after)) for answer, after in self._all_responses(truth, direction))
            self._responses[number, direction] = found
        return found

    def arrivals(self, number: int) -> tuple[tuple[str, int], ...]:
        """What may happen to copies that are still on their way, with the truth after it; nobody hears an answer."""
        found = self._arrivals.get(number)
        if found is None:
            found = tuple((words, self._number(after)) for words, after in self._all_arrivals(self.truths[number]))
            self._arrivals[number] = found
        return found

    def left(self, number: int, direction: Direction) -> int:
        """The truth after nobody waits any more for a call in flight."""
        return self._changed(number, direction.value)

    def forgotten(self, number: int) -> int:
        """The truth after the participant has forgotten the key."""
        return self._changed(number, "forget")

    def landed(self, number: int) -> int:
        """The truth after so long that no copy of an action is on its way any more."""
        return self._changed(number, "land")

    def _changed(self, number: int, change: str) -> int:
        found = self._changes.get((number, change))
        if found is None:
            truth = self.truths[number]
            if change == "forget":
                after = truth._replace(memory=Memory.FORGOTTEN, actions=0)
            elif change == "land":
                after = truth._replace(actions=0)
            else:
                after = self._copied(truth, Direction(change))
            found = self._changes[number, change] = self._number(after)
        return found

    def _number(self, truth: Truth) -> int:
        number = self._numbers.get(truth)
        if number is None:
            number = self._numbers[truth] = len(self.truths)
            self.truths.append(truth)
        return number

    def _all_responses(self, truth: Truth, direction: Direction) -> Iterator[tuple[Answer, Truth]]:
        for answer, after in self._processed(truth, direction):
            yield answer, after
            refused = answer.outcome not in (Outcome.SUCCEEDED, Outcome.REJECTED_SEALED)
            if self.small.copies and self.step.guarantee is not Guarantee.NONE and not refused:
                yield answer, self._copied(after, direction)
        yield UNKNOWN, self._copied(truth, direction)
        if self.small.outages:
            yield NOT_SENT, truth
        if self.small.wiring:
            yield MISWIRED, truth

    def _all_arrivals(self, truth: Truth) -> Iterator[tuple[str, Truth]]:
        for direction, name in _COPIES.items():
            if getattr(truth, name):
                for answer, after in self._processed(truth, direction):
                    words = f"a late {direction.lower()} of {self.step.name} arrives: {answer.outcome.lower()}"
                    yield words, after._replace(**{name: getattr(after, name) - 1})

    def _copied(self, truth: Truth, direction: Direction) -> Truth:
        if self.step.kind is StepKind.READ_ONLY:
            return truth
        if direction is Direction.LOOKUP and not self.step.lookup_seals:
            return truth
        name = _COPIES[direction]
        most = MOST if direction is Direction.ACTION else 1
        return truth._replace(**{name: min(most, getattr(truth, name) + 1)})

    def _processed(self, truth: Truth, direction: Direction) -> Iterator[tuple[Answer, Truth]]:
        """The participant gets to work on a call: its answers, with the truth after each."""
        if self.step.kind is StepKind.READ_ONLY:
            yield from self._done(truth)
            yield REFUSED, truth
            return
        if direction is Direction.LOOKUP and self.small.elsewhere:
            yield NOT_FOUND_SEALED, truth
            return
        match self.step.guarantee:
            case Guarantee.BARRIER:
                yield from self._behind_barrier(truth, direction)
            case Guarantee.KEY:
                yield from self._with_key(truth, direction)
            case Guarantee.NONE:
                yield from self._with_nothing(truth, direction)

    def _behind_barrier(self, truth: Truth, direction: Direction) -> Iterator[tuple[Answer, Truth]]:
        seals = self.step.kind is not StepKind.RETRIABLE
        match direction, truth.memory:
            case _, Memory.FORGOTTEN:
                yield TOO_OLD, truth
            case Direction.ACTION, Memory.NOTHING:
                yield from self._done(_performed(truth))
                yield (REFUSED_SEALED, truth._replace(memory=Memory.SEALED)) if seals else (REFUSED, truth)
            case Direction.ACTION, Memory.DONE:
                yield from self._done(truth)
            case Direction.ACTION, _:
                yield REFUSED_SEALED, truth
            case Direction.COMPENSATION, Memory.NOTHING:
                yield OK, truth._replace(memory=Memory.SEALED)
            case Direction.COMPENSATION, Memory.DONE:
                yield OK, _undone(truth)
                yield REFUSED, truth
            case Direction.COMPENSATION, _:
                yield OK, truth
            case Direction.LOOKUP, Memory.DONE:
                yield from self._done(truth)
            case Direction.LOOKUP, Memory.NOTHING:
                yield (NOT_FOUND_SEALED, truth._replace(memory=Memory.SEALED)) if seals else (NOT_FOUND, truth)
            case _:
                yield NOT_FOUND_SEALED, truth

    def _with_key(self, truth: Truth, direction: Direction) -> Iterator[tuple[Answer, Truth]]:
        match direction, truth.memory:
            case Direction.ACTION, Memory.NOTHING | Memory.FORGOTTEN:
                yield from self._done(_performed(truth))
                yield (ALREADY_DONE if self.step.action.already_done_codes else REFUSED), truth
            case Direction.ACTION, _:
                yield from self._done(truth)
                yield (ALREADY_DONE if self.step.action.already_done_codes else REFUSED), truth
            case Direction.COMPENSATION, _ if truth.standing:
                yield OK, _undone(truth)
                yield REFUSED, truth
                yield NOT_FOUND, truth
            case Direction.COMPENSATION, _:
                yield OK, truth
                yield NOT_FOUND, truth
            case Direction.LOOKUP, Memory.DONE:
                yield from self._done(truth)
            case _:
                yield NOT_FOUND, truth

    def _with_nothing(self, truth: Truth, direction: Direction) -> Iterator[tuple[Answer, Truth]]:
        match direction:
            case Direction.ACTION:
                yield from self._done(_performed(truth))
                yield REFUSED, truth
            case Direction.COMPENSATION:
                yield OK, _undone(truth)._replace(standing=max(0, truth.standing - 1))
                yield (REFUSED if truth.standing else NOT_FOUND), truth
            case Direction.LOOKUP if truth.standing:
                yield from self._done(truth)
            case _:
                yield NOT_FOUND, truth

    def _done(self, truth: Truth) -> Iterator[tuple[Answer, Truth]]:
        yield OK, truth
        if self.small.soft_aborts:
            yield OK_AND_ABORT, truth


_COPIES = {Direction.ACTION: "actions", Direction.COMPENSATION: "undos", Direction.LOOKUP: "asks"}


def _performed(truth: Truth) -> Truth:
    return truth._replace(
        memory=Memory.DONE, effects=min(MOST, truth.effects + 1), standing=min(MOST, truth.standing + 1)
    )


def _undone(truth: Truth) -> Truth:
    return truth._replace(memory=Memory.UNDONE, standing=0, undo_runs=min(MOST, truth.undo_runs + 1))
