"""A decision while it is being made: collects changed rows and effects, and hands out the finished `Decision`."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, TypedDict, Unpack

from amends_coordinator.core.decision import Decision, Records
from amends_coordinator.core.effects import Call, CallAction, CallCompensation, CallLookup, Effect, Park
from amends_coordinator.core.ids import DeadLetterId, Instant, StepName
from amends_coordinator.core.saga import (
    FIRST_ATTEMPTS_KEPT,
    LAST_ATTEMPTS_KEPT,
    Attempt,
    DeadLetter,
    Failure,
    Intent,
    Saga,
)
from amends_coordinator.core.states import (
    ACTION,
    PENDING,
    RUNNING,
    DeadLetterReason,
    Direction,
    IntentState,
    Resolution,
    SagaState,
)
from amends_coordinator.core.transitions import IntentMove, SagaMove, move_intent, move_saga
from amends_coordinator.core.values import copied, copier, fill, maker, writers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from amends_coordinator.core.answer import Answer
    from amends_coordinator.core.events import Moment


_attempt = maker(Attempt)
_ended_attempt = copier(Attempt, "end_time", "status_code", "outcome")
_decided = copier(Saga, "intents", "dead_letters", "due_time", "updated_time", "progress_time", "ended_time")
_calls: dict[Direction, Callable[[StepName, int, Instant], Call]] = {
    ACTION: maker(CallAction),
    Direction.COMPENSATION: maker(CallCompensation),
    Direction.LOOKUP: maker(CallLookup),
}
_decision = maker(Decision)
_records = maker(Records)
_write = writers(Intent)

TOLD_ONLY = frozenset({DeadLetterReason.ABORT_TOO_LATE, DeadLetterReason.TIMED_OUT})
"""Dead letters that only tell a person something: no call waits for them."""


class IntentChanges(TypedDict, total=False):
    """Columns of an intent's row that a decision may change; see `Intent`."""

    state: IntentState
    attempt: int
    attempts: tuple[Attempt, ...]
    attempts_left_out: Mapping[str, int]
    next_attempt_time: Instant | None
    unsettled: bool
    refusals: int
    spent_us: int
    unsent_us: int
    response: bytes | None
    last_error: str
    last_code: str
    key_forced: bool
    resolution: Resolution | None
    resolved_by: str


class SagaChanges(TypedDict, total=False):
    """Columns of a saga's row that a decision may change; see `Saga`."""

    state: SagaState
    failure: Failure | None
    point_of_no_return_passed: bool
    unproven: bool
    compensations_owed: int


class Draft:
    """The saga under decision. Every change of a row goes through it, so that none is forgotten in the records.

    A row that is changed for the first time is copied; the copy belongs to the draft and is filled in until the
    decision
    is finished. What was decided before stays as it is.
    """

    def __init__(self, saga: Saga, at: Moment) -> None:
        self.plan = saga.plan
        self.at = at
        self.saga = saga
        """The saga's row so far. Its `intents` are brought up to date by `finished`; read them through `intent`."""
        self._before = saga
        self._intents = {(intent.step, intent.direction): intent for intent in saga.intents}
        self._changed: dict[tuple[StepName, Direction], Intent] = {}
        self._announced: dict[tuple[StepName, Direction], None] = {}
        self._letters = {letter.id: letter for letter in saga.dead_letters} if saga.dead_letters else {}
        self._letters_changed: dict[DeadLetterId, None] = {}
        self._effects: list[Effect] = []
        self._got_on = False

    @property
    def intents(self) -> tuple[Intent, ...]:
        """All intents so far, in the order in which they were announced."""
        return tuple(self._intents.values())

    @property
    def actions(self) -> list[Intent]:
        """The intents of actions so far."""
        return [intent for intent in self._intents.values() if intent.direction is ACTION]

    @property
    def pending(self) -> list[Intent]:
        """The intents so far that are in flight or wait for their time."""
        return [intent for intent in self._intents.values() if intent.state is PENDING]

    @property
    def dead_letters(self) -> Collection[DeadLetter]:
        """All dead letters so far."""
        return self._letters.values()

    def intent(self, step: StepName, direction: Direction) -> Intent | None:
        """The intent of a step and direction as it is so far."""
        return self._intents.get((step, direction))

    def put(self, intent: Intent, **changes: Unpack[IntentChanges]) -> Intent:
        """Add an intent's row, or change columns of it; answers the row as it is now."""
        row = self._own(intent)
        for column, content in changes.items():
            _write[column](row, content)
        return row

    def move(self, intent: Intent, move: IntentMove, **changes: Unpack[IntentChanges]) -> Intent:
        """Move an intent as the table says, and change columns of it; it waits for nothing any more, and nobody has to
        look after it if it was parked.
        """
        if intent.state is IntentState.PARKED:
            for letter in self.open_letters(intent.step, intent.direction):
                self.close_dead_letter(letter)
        self._got_on = True
        changes["state"] = move_intent(intent.state, move)
        changes["next_attempt_time"] = None
        row = self._own(intent)
        for column, content in changes.items():
            _write[column](row, content)
        return row

    def _own(self, intent: Intent) -> Intent:
        """The row to fill in."""
        key = (intent.step, intent.direction)
        if self._changed.get(key) is not intent:
            # A row that is new here was made for this draft: nobody else has it.
            intent = copied(intent) if key in self._intents else intent
            self._changed[key] = self._intents[key] = intent
            _write["updated_time"](intent, self.at.now)
        return intent

    def announce(self, intent: Intent, deadline_time: Instant) -> None:
        """Write down that the next attempt may now be made, and have it made once that is durable."""
        number = intent.attempt + 1
        self._got_on = self._got_on or number == 1
        attempts = (*intent.attempts, _attempt(number=number, node=self.at.node, start_time=self.at.now))
        row = self._own(intent)
        if len(attempts) > FIRST_ATTEMPTS_KEPT + LAST_ATTEMPTS_KEPT:
            attempts, left_out = _cut(attempts, intent.attempts_left_out)
            _write["attempts_left_out"](row, left_out)
        _write["attempts"](row, attempts)
        _write["attempt"](row, number)
        _write["next_attempt_time"](row, None)
        self._announced[intent.step, intent.direction] = None
        self._effects.append(_calls[intent.direction](intent.step, number, deadline_time))

    def close_attempt(self, intent: Intent, answer: Answer) -> Intent:
        """Write down how the newest attempt ended."""
        *before, last = intent.attempts
        attempts = (*before, _ended_attempt(last, self.at.now, answer.status_code, answer.outcome))
        if answer.status_code == "OK" and answer.response is not None:
            return self.put(intent, attempts=attempts)
        return self.put(intent, attempts=attempts, last_error=answer.message, last_code=answer.status_code)

    def move_saga(self, move: SagaMove) -> None:
        """Move the saga as the table says."""
        self._got_on = True
        self.change(state=move_saga(self.saga.state, move))

    def change(self, **changes: Unpack[SagaChanges]) -> None:
        """Change columns of the saga's row."""
        if self.saga is self._before:
            self.saga = copied(self._before)
        fill(self.saga, changes)

    def open_dead_letter(
        self, step: StepName | None, direction: Direction | None, reason: DeadLetterReason, error: str
    ) -> None:
        """Ask for a person."""
        number = len(self._letters) + 1
        where = f"{step or '-'}/{direction.value.lower() if direction else '-'}"
        letter = DeadLetter(
            id=DeadLetterId(f"{self.saga.id}/{where}/{number}"),
            step=step,
            direction=direction,
            reason=reason,
            last_error=error,
            opened_time=self.at.now,
        )
        self._letters[letter.id] = letter
        self._letters_changed[letter.id] = None
        self.effect(Park(letter))

    def close_dead_letter(self, letter: DeadLetter) -> None:
        """Write down that a dead letter needs nobody any more."""
        closed = copied(letter)
        fill(closed, {"closed_time": self.at.now})
        self._letters[letter.id] = closed
        self._letters_changed[letter.id] = None

    def open_letters(self, step: StepName, direction: Direction) -> tuple[DeadLetter, ...]:
        """The open dead letters that say that a call is parked."""
        return tuple(
            letter
            for letter in self._letters.values()
            if letter.closed_time is None
            and letter.step == step
            and letter.direction is direction
            and letter.reason not in TOLD_ONLY
        )

    def park(self, intent: Intent, reason: DeadLetterReason) -> None:
        """Stop a call until a person has decided."""
        if intent.state is not IntentState.PARKED:
            self.move(intent, IntentMove.NEEDS_PERSON)
        self.open_dead_letter(intent.step, intent.direction, reason, intent.last_error)

    def effect(self, effect: Effect) -> None:
        """Have something done once the records are durable."""
        self._effects.append(effect)

    def got_on(self) -> None:
        """Write down that the saga gets on although no state changes: a person has done something."""
        self._got_on = True

    def finished(self, due_time: Instant | None) -> Decision:
        """The decision, with the saga's next due time."""
        before, saga, now = self._before, self.saga, self.at.now
        rows_changed = self._changed or self._letters_changed or saga != before
        if not rows_changed and due_time == before.due_time:
            return Decision(before, Records(), tuple(self._effects), changed=False)
        intents, letters_changed = self._intents, self._letters_changed
        records = _records(
            intents=tuple(self._changed.values()),
            dead_letters=tuple([self._letters[key] for key in letters_changed]) if letters_changed else (),
            announced=tuple([intents[key] for key in self._announced]) if self._announced else (),
        )
        decided = _decided(
            saga,
            tuple(intents.values()),
            tuple(self._letters.values()) if letters_changed else saga.dead_letters,
            due_time,
            now,
            now if self._got_on else saga.progress_time,
            now if saga.state is not RUNNING and saga.state.ended and saga.ended_time is None else saga.ended_time,
        )
        return _decision(decided, records, tuple(self._effects), changed=True)


def _cut(attempts: tuple[Attempt, ...], left_out: Mapping[str, int]) -> tuple[tuple[Attempt, ...], Mapping[str, int]]:
    """Attempts that are one too many: the first and the last ones are kept whole, the rest as counts by status code."""
    oldest = attempts[FIRST_ATTEMPTS_KEPT]
    counts = Counter(left_out)
    counts[oldest.status_code or "NO_ANSWER"] += 1
    kept = (*attempts[:FIRST_ATTEMPTS_KEPT], *attempts[FIRST_ATTEMPTS_KEPT + 1 :])
    return kept, MappingProxyType(dict(counts))
