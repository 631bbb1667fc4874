"""Turns a saga's ledger rows and dead letters into lanes: what was going on, from when to when, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from google.protobuf.timestamp_pb2 import Timestamp

from amends.cli.formats import enum_word, instant, micros
from amends.v1.saga_pb2 import (
    DIRECTION_ACTION,
    DIRECTION_COMPENSATION,
    DIRECTION_LOOKUP,
    OUTCOME_NOT_SENT,
    OUTCOME_REJECTED,
    OUTCOME_REJECTED_SEALED,
    OUTCOME_UNKNOWN,
    OUTCOME_WIRING_FAULT,
    Attempt,
    DeadLetter,
    Intent,
    Outcome,
    Saga,
)

MOST_LANES = 8
"""A ledger row with more attempts than this has lanes for the first and the last of them, and one for those between."""
FIRST, LAST = 2, 3


class Kind(Enum):
    """What a time was spent with."""

    ACTION = auto()
    COMPENSATION = auto()
    LOOKUP = auto()
    WAIT = auto()
    DEAD_LETTER = auto()


class Mark(Enum):
    """What a span's last column says, where it isn't a call that succeeded; a dead letter's is the first."""

    REJECTED = auto()
    UNKNOWN = auto()
    NOT_SENT = auto()
    WIRING_FAULT = auto()
    GOES_ON = auto()
    DEAD_LETTER = auto()


KINDS = {
    DIRECTION_ACTION: Kind.ACTION,
    DIRECTION_COMPENSATION: Kind.COMPENSATION,
    DIRECTION_LOOKUP: Kind.LOOKUP,
}
MARKS = {
    OUTCOME_REJECTED: Mark.REJECTED,
    OUTCOME_REJECTED_SEALED: Mark.REJECTED,
    OUTCOME_UNKNOWN: Mark.UNKNOWN,
    OUTCOME_NOT_SENT: Mark.NOT_SENT,
    OUTCOME_WIRING_FAULT: Mark.WIRING_FAULT,
}


@dataclass(frozen=True, slots=True)
class Span:
    """A time from one instant to another, in microseconds since 1970."""

    kind: Kind
    begin: int
    end: int
    mark: Mark | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One line of a timeline; later spans lie over earlier ones."""

    step: str
    """Empty: the saga as a whole."""
    kind: Kind
    """Which of the step's calls."""
    number: str
    """Which attempt, as "#2" or "#3-37"; "!" for a dead letter."""
    spans: tuple[Span, ...] = ()
    took_us: int | None = None
    note: str
    """How it ended or what it waits for, in words."""
    mark: Mark | None = None


def lanes_of(saga: Saga, end: int) -> Iterator[Lane]:
    """The lanes of a saga, row by row, each with its dead letters behind it; what goes on reaches to `end`."""
    letters = list(saga.dead_letters)
    for intent in saga.intents:
        yield from _of_intent(intent, end)
        own = [letter for letter in letters if (letter.step, letter.direction) == (intent.step, intent.direction)]
        yield from (_of_letter(letter, end) for letter in own)
        letters = [letter for letter in letters if letter not in own]
    yield from (_of_letter(letter, end) for letter in letters)


def _of_intent(intent: Intent, end: int) -> Iterator[Lane]:
    first, between, last = _folded(intent)
    before: Attempt | None = None
    for attempt in first:
        yield _of_attempt(intent, before, attempt, end)
        before = attempt
    left_out = sum(intent.attempts_left_out.values())
    if between or left_out:
        yield _of_many(intent, before, between, last[:1], end)
        before = between[-1] if between else None
    for attempt in last:
        yield _of_attempt(intent, before, attempt, end)
        before = attempt
    if intent.HasField("next_attempt_time") or not (before or left_out):
        yield _of_wait(intent, before, end)


def _folded(intent: Intent) -> tuple[Sequence[Attempt], Sequence[Attempt], Sequence[Attempt]]:
    """The attempts that get a lane each, those between them that share one, and again those with a lane each."""
    kept = list(intent.attempts)
    if len(kept) > MOST_LANES:
        return kept[:FIRST], kept[FIRST:-LAST], kept[-LAST:]
    if not intent.attempts_left_out:
        return kept, [], []
    unbroken = next((index for index, attempt in enumerate(kept) if attempt.number != index + 1), len(kept))
    return kept[:unbroken], [], kept[unbroken:]


def _of_attempt(intent: Intent, before: Attempt | None, attempt: Attempt, end: int) -> Lane:
    call = _call(intent, attempt, end)
    waited_since = _waiting_since(intent, before)
    wait = [Span(Kind.WAIT, waited_since, call.begin)] if waited_since is not None and waited_since < call.begin else []
    return Lane(
        step=intent.step,
        kind=_kind(intent),
        number=f"#{attempt.number}",
        spans=(*wait, call),
        took_us=call.end - call.begin,
        note=_outcome(attempt.outcome),
        mark=call.mark,
    )


def _call(intent: Intent, attempt: Attempt, end: int) -> Span:
    begin = micros(attempt.start_time)
    if not attempt.HasField("end_time"):
        return Span(_kind(intent), begin, max(begin, end), Mark.GOES_ON)
    return Span(_kind(intent), begin, max(begin, micros(attempt.end_time)), MARKS.get(attempt.outcome))


def _of_many(
    intent: Intent, before: Attempt | None, attempts: Sequence[Attempt], after: Iterable[Attempt], end: int
) -> Lane:
    """The lane of attempts that don't get one each; of some of them the ledger keeps nothing but how they ended."""
    calls = [_call(intent, attempt, end) for attempt in attempts]
    since, until = _waiting_since(intent, before), [micros(attempt.start_time) for attempt in after]
    begin = since if since is not None else min((call.begin for call in calls), default=end)
    finish = min(until) if until else max((call.end for call in calls), default=end)
    count = len(attempts) + sum(intent.attempts_left_out.values())
    first = before.number + 1 if before else 1
    return Lane(
        step=intent.step,
        kind=_kind(intent),
        number=f"#{first}-{first + count - 1}",
        spans=(Span(Kind.WAIT, begin, max(begin, finish)), *calls),
        took_us=max(0, finish - begin),
        note=f"{count} attempts",
    )


def _of_wait(intent: Intent, before: Attempt | None, end: int) -> Lane:
    """The lane of the next attempt, or of a row that has none."""
    since = _waiting_since(intent, before)
    waits = intent.state == Intent.STATE_PENDING and since is not None
    if intent.HasField("next_attempt_time"):
        today = instant(Timestamp(seconds=end // 1_000_000)).partition(" ")[0]
        note = f"next {instant(intent.next_attempt_time).removeprefix(f'{today} ')}"
    else:
        note = enum_word(Intent.State.DESCRIPTOR, intent.state).lower().replace("_", " ")
    return Lane(
        step=intent.step,
        kind=_kind(intent),
        number=f"#{intent.attempt_count + 1 if before is None else before.number + 1}",
        spans=(Span(Kind.WAIT, since, max(since, end), Mark.GOES_ON),) if waits and since is not None else (),
        took_us=max(0, end - since) if waits and since is not None else None,
        note=note,
    )


def _of_letter(letter: DeadLetter, end: int) -> Lane:
    closed = letter.HasField("close_time")
    begin = micros(letter.open_time)
    finish = max(begin, micros(letter.close_time) if closed else end)
    return Lane(
        step=letter.step,
        kind=KINDS.get(letter.direction, Kind.DEAD_LETTER),
        number="!",
        spans=(Span(Kind.DEAD_LETTER, begin, finish, Mark.DEAD_LETTER),),
        took_us=finish - begin,
        note=f"{'closed' if closed else 'open'} {enum_word(DeadLetter.Reason.DESCRIPTOR, letter.reason)}",
        mark=None if closed else Mark.DEAD_LETTER,
    )


def _waiting_since(intent: Intent, before: Attempt | None) -> int | None:
    """When the wait for an attempt began; None if that is not known."""
    if before is not None:
        return micros(before.end_time) if before.HasField("end_time") else None
    return micros(intent.create_time) if intent.HasField("create_time") else None


def _kind(intent: Intent) -> Kind:
    return KINDS.get(intent.direction, Kind.ACTION)


def _outcome(outcome: Outcome.ValueType) -> str:
    if not outcome:
        return "goes on"
    return enum_word(Outcome.DESCRIPTOR, outcome).lower().replace("_", " ")
