"""A decision while it is being made: collects changed rows and effects, and hands out the finished `Decision`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from amends_coordinator.core.decision import Decision, Records
from amends_coordinator.core.effects import CALL_OF, Effect, Park
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
from amends_coordinator.core.states import DeadLetterReason, Direction, SagaState
from amends_coordinator.core.transitions import IntentMove, SagaMove, move_intent, move_saga

if TYPE_CHECKING:
    from amends_coordinator.core.answer import Answer
    from amends_coordinator.core.events import Moment


class Draft:
    """The saga under decision. Every change of a row goes through it, so that none is forgotten in the records."""

    def __init__(self, saga: Saga, at: Moment) -> None:
        self.plan = saga.plan
        self.at = at
        self._before = saga
        self._saga = saga
        self._intents = {intent.key: intent for intent in saga.intents}
        self._touched: dict[tuple[StepName, Direction], None] = {}
        self._announced: dict[tuple[StepName, Direction], None] = {}
        self._letters: list[DeadLetter] = []
        self._effects: list[Effect] = []

    @property
    def saga(self) -> Saga:
        """The saga's row so far. Its `intents` are brought up to date by `finished`; read them through `intent`."""
        return self._saga

    @property
    def intents(self) -> tuple[Intent, ...]:
        """All intents so far, in the order in which they were announced."""
        return tuple(self._intents.values())

    @property
    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """All dead letters so far."""
        return (*self._before.dead_letters, *self._letters)

    def intent(self, step: StepName, direction: Direction) -> Intent | None:
        """The intent of a step and direction as it is so far."""
        return self._intents.get((step, direction))

    def put(self, intent: Intent) -> Intent:
        """Add or change an intent's row."""
        changed = replace(intent, updated_time=self.at.now)
        self._intents[intent.key] = changed
        self._touched[intent.key] = None
        return changed

    def move(self, intent: Intent, move: IntentMove) -> Intent:
        """Move an intent as the table says; it waits for nothing any more."""
        return self.put(replace(intent, state=move_intent(intent.state, move), next_attempt_time=None))

    def announce(self, intent: Intent, deadline_time: Instant) -> None:
        """Write down that the next attempt may now be made, and have it made once that is durable."""
        number = intent.attempt + 1
        attempt = Attempt(number=number, node=self.at.node, start_time=self.at.now)
        announced = replace(intent, attempt=number, next_attempt_time=None)
        self.put(_with_attempt(announced, attempt))
        self._announced[intent.key] = None
        self.effect(CALL_OF[intent.direction](intent.step, number, deadline_time))

    def close_attempt(self, intent: Intent, answer: Answer) -> Intent:
        """Write down how the newest attempt ended."""
        last = replace(
            intent.attempts[-1], end_time=self.at.now, status_code=answer.status_code, outcome=answer.outcome
        )
        closed = replace(intent, attempts=(*intent.attempts[:-1], last))
        if answer.status_code == "OK" and answer.response is not None:
            return self.put(closed)
        return self.put(replace(closed, last_error=answer.message, last_code=answer.status_code))

    def move_saga(self, move: SagaMove) -> None:
        """Move the saga as the table says."""
        self.change(state=move_saga(self._saga.state, move))

    def change(
        self,
        *,
        state: SagaState | None = None,
        failure: Failure | None = None,
        point_of_no_return_passed: bool | None = None,
        unproven: bool | None = None,
        compensations_owed: int | None = None,
    ) -> None:
        """Change columns of the saga's row; what is None stays."""
        now = self._saga
        self._saga = replace(
            now,
            state=now.state if state is None else state,
            failure=now.failure if failure is None else failure,
            point_of_no_return_passed=(
                now.point_of_no_return_passed if point_of_no_return_passed is None else point_of_no_return_passed
            ),
            unproven=now.unproven if unproven is None else unproven,
            compensations_owed=now.compensations_owed if compensations_owed is None else compensations_owed,
        )

    def open_dead_letter(
        self, step: StepName | None, direction: Direction | None, reason: DeadLetterReason, error: str
    ) -> None:
        """Ask for a person."""
        number = len(self.dead_letters) + 1
        where = f"{step or '-'}/{direction.value.lower() if direction else '-'}"
        letter = DeadLetter(
            id=DeadLetterId(f"{self._saga.id}/{where}/{number}"),
            step=step,
            direction=direction,
            reason=reason,
            last_error=error,
            opened_time=self.at.now,
        )
        self._letters.append(letter)
        self.effect(Park(letter))

    def park(self, intent: Intent, reason: DeadLetterReason) -> None:
        """Stop a call until a person has decided."""
        self.move(intent, IntentMove.NEEDS_PERSON)
        self.open_dead_letter(intent.step, intent.direction, reason, intent.last_error)

    def effect(self, effect: Effect) -> None:
        """Have something done once the records are durable."""
        self._effects.append(effect)

    def finished(self, due_time: Instant | None) -> Decision:
        """The decision, with the saga's next due time."""
        saga = replace(self._saga, intents=self.intents, dead_letters=self.dead_letters, due_time=due_time)
        if saga == self._before:
            return Decision(self._before, Records(), tuple(self._effects), changed=False)
        ended = self.at.now if saga.state.ended and saga.ended_time is None else saga.ended_time
        saga = replace(saga, updated_time=self.at.now, ended_time=ended)
        records = Records(
            intents=tuple(self._intents[key] for key in self._touched),
            dead_letters=tuple(self._letters),
            announced=tuple(self._intents[key] for key in self._announced),
        )
        return Decision(saga, records, tuple(self._effects), changed=True)


def _with_attempt(intent: Intent, attempt: Attempt) -> Intent:
    """The intent with one more attempt: the first and the last ones are kept whole, the rest as counts by status
    code.
    """
    attempts = (*intent.attempts, attempt)
    if len(attempts) <= FIRST_ATTEMPTS_KEPT + LAST_ATTEMPTS_KEPT:
        return replace(intent, attempts=attempts)
    oldest = attempts[FIRST_ATTEMPTS_KEPT]
    counts = Counter(intent.attempts_left_out)
    counts[oldest.status_code or "NO_ANSWER"] += 1
    kept = (*attempts[:FIRST_ATTEMPTS_KEPT], *attempts[FIRST_ATTEMPTS_KEPT + 1 :])
    return replace(intent, attempts=kept, attempts_left_out=MappingProxyType(dict(counts)))
