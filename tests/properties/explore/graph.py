"""The core as a graph: sagas that the core can tell apart, and what it decides about each event in each of them.

Sagas are made canonical and numbered. The core decides each event once for each of them; since it is pure, whoever
meets the same saga in another world gets the same decision from the graph. Every decision is checked when it is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from amends_coordinator.core.decide import decide
from amends_coordinator.core.effects import IgnoreLateAnswer
from amends_coordinator.core.events import Adopted, AttemptEnded, Event, Started, Woken
from amends_coordinator.core.ids import Instant, SagaId
from amends_coordinator.core.operate import accept_abort, decide_verb
from amends_coordinator.core.saga import Intent, Saga
from amends_coordinator.core.states import Direction, IntentState, Resolution, SagaState
from amends_coordinator.core.transitions import IllegalTransitionError
from amends_coordinator.core.verbs import Refusal, Verb, VerbRefusedError
from tests.properties.answers import OK
from tests.properties.explore import happenings
from tests.properties.explore.canonical import SagaKey, key_of, saga_from
from tests.properties.explore.happenings import NOW, answer_times, moment, told
from tests.properties.explore.rules import Move, complaints
from tests.properties.explore.shapes import FAR_US, WINDOW_US, Small, plan_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amends_coordinator.core.answer import Answer
    from amends_coordinator.core.decision import Decision
    from amends_coordinator.core.ids import StepName
    from amends_coordinator.core.plan import Plan

Place = tuple[int, Direction]
"""A step by its number, and the direction of a call of it."""


class Way(NamedTuple):
    """What leads from one saga to another. `left`: calls in flight that nobody waits for any more."""

    words: str
    target: int
    left: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the explorer has to know of a saga. The tuples have an item per step.

    `excused`: a named person has said what became of it. `forgettable`: its keys may be forgotten. `landed`: no copy of
    its action can be on its way any more. `settled_late`: its lookup was believed although it sealed nothing.
    """

    state: SagaState
    unproven: bool
    forced: bool
    in_flight: tuple[Place, ...]
    excused: tuple[bool, ...]
    forgettable: tuple[int, ...]
    landed: tuple[int, ...]
    settled_late: tuple[int, ...]


class Graph:
    """All that the core decides about one small saga. `broken` holds complaints that nobody has fetched yet."""

    def __init__(self, small: Small, plan: Plan | None = None) -> None:
        self.small = small
        self.plan = plan_of(small) if plan is None else plan
        self.steps = (*self.plan.steps, *self.plan.on_compensated)
        self.sagas: list[Saga] = []
        self.facts: list[Facts] = []
        self.broken: list[tuple[str, str]] = []
        self.decisions = 0
        self._numbers: dict[SagaKey, int] = {}
        self._ways: dict[int, tuple[Way, ...]] = {}
        self._answers: dict[tuple[int, Place, Answer], tuple[Way, ...]] = {}
        self._place = {step.name: number for number, step in enumerate(self.steps)}

    def starts(self) -> Iterator[Way]:
        """The beginnings of the saga."""
        zero = Instant(0)
        new = Saga(
            id=SagaId("s"),
            plan=self.plan,
            created_time=zero,
            updated_time=zero,
            progress_time=zero,
            deadline_time=Instant(FAR_US),
        )
        yield from self._decided(new, Started(NOW), "it starts")

    def answered(self, number: int, place: Place, answer: Answer) -> tuple[Way, ...]:
        """What becomes of a saga when a call in flight gets an answer."""
        found = self._answers.get((number, place, answer))
        if found is None:
            saga = self.sagas[number]
            intent = self._in_flight(saga, place)
            ways: list[Way] = []
            for time in answer_times(intent, self.small):
                event = AttemptEnded(moment(time), intent.step, intent.direction, intent.attempt, answer)
                ways.extend(self._decided(saga, event, told(event)))
            found = self._answers[number, place, answer] = tuple(ways)
        return found

    def ways(self, number: int) -> tuple[Way, ...]:
        """What may become of a saga beside the answers to its calls."""
        found = self._ways.get(number)
        if found is None:
            found = self._ways[number] = tuple(self._all_ways(self.sagas[number]))
            self._probe(self.sagas[number])
        return found

    def healed(self, number: int) -> int | None:
        """The saga after the next thing that happens when participants answer OK from now on; None if nothing does."""
        saga, facts = self.sagas[number], self.facts[number]
        if facts.in_flight:
            return self.answered(number, facts.in_flight[0], OK)[0].target
        if saga.due_time is None:
            return None
        woken = Woken(moment(max(0, saga.due_time)))
        return next(iter(self._decided(saga, woken, told(woken)))).target

    def _all_ways(self, saga: Saga) -> Iterator[Way]:
        for event in happenings.events(saga, self.small):
            yield from self._decided(saga, event, told(event))
        for words, written in happenings.written_by_others(saga, self.small):
            yield Way(words, self._number(written, 0), ())
        for verb in happenings.verbs(saga, self.small):
            yield from self._asked(saga, verb)

    def _decided(self, saga: Saga, event: Event, words: str) -> Iterator[Way]:
        self.decisions += 1
        try:
            first = decide(saga, event)
            variants = tuple(happenings.with_failed_bindings(first, event, self.small))
        except Exception as error:  # noqa: BLE001 - whatever the core raises here is the finding
            self.broken.append((f"core: it raised {type(error).__name__}: {error}", words))
            return
        for decision in variants:
            self._check(Move(saga, event, decision), words, by_person=False)
            self._decide_again(decision.saga, event, words)
            yield self._way(saga, decision, event, words)

    def _asked(self, saga: Saga, verb: Verb) -> Iterator[Way]:
        self.decisions += 1
        words = told(verb)
        try:
            decision = decide_verb(saga, verb)
        except VerbRefusedError:
            return
        except Exception as error:  # noqa: BLE001 - whatever the core raises here is the finding
            self.broken.append((f"core: it raised {type(error).__name__}: {error}", words))
            return
        self._check(Move(saga, verb, decision), words, by_person=True)
        self._ask_again(decision.saga, verb, words)
        yield self._way(saga, decision, verb, words)

    def _check(self, move: Move, words: str, *, by_person: bool) -> None:
        self.broken.extend((complaint, words) for complaint in complaints(move, by_person=by_person))

    def _decide_again(self, saga: Saga, event: Event, words: str) -> None:
        """The commit's answer was lost, and the owner decides an event again that was applied: nothing changes."""
        if isinstance(event, AttemptEnded | Woken):
            again = decide(saga, event)
            if again.changed:
                self.broken.append(("S12: the same event counts twice", words))
            elif isinstance(event, AttemptEnded) and not isinstance(again.effects[0], IgnoreLateAnswer):
                self.broken.append(("S12: an answer that was heard isn't known as late", words))

    def _ask_again(self, saga: Saga, verb: Verb, words: str) -> None:
        """The second of two people is told that the dead letter is closed."""
        closed = {letter.id for letter in saga.dead_letters if letter.closed_time is not None}
        if getattr(verb, "letter", None) not in closed:
            return
        try:
            decide_verb(saga, verb)
        except VerbRefusedError as error:
            if error.refusal is Refusal.LETTER_CLOSED:
                return
        self.broken.append(("S8: a closed dead letter was acted on", words))

    def _probe(self, saga: Saga) -> None:
        """What is late, or can't happen, or would spin."""
        for step in self.steps:
            for direction in Direction:
                intent = saga.intent(step.name, direction)
                attempt = 0 if intent is None else intent.attempt
                in_flight = intent is not None and intent.in_flight
                late = AttemptEnded(NOW, step.name, direction, attempt - 1 if in_flight else attempt, OK)
                if late.attempt > 0 and decide(saga, late).changed:
                    self.broken.append((f"S2: an answer to attempt {late.attempt} was heard late", told(late)))
        try:
            decide(saga, Started(NOW))
        except IllegalTransitionError:
            pass
        else:
            self.broken.append(("S9: the saga starts a second time", "it starts"))
        self._probe_abort(saga)
        if saga.due_time is not None and saga.due_time < FAR_US:
            woken = decide(saga, Woken(moment(max(0, saga.due_time)))).saga
            if woken.due_time is not None and woken.due_time <= max(0, saga.due_time):
                self.broken.append(("L1: the saga wakes up again at once, and again, for nothing", "its time has come"))

    def _probe_abort(self, saga: Saga) -> None:
        """An abort is refused only where it comes too late, and repeated it changes nothing."""
        accepted = accept_abort(saga, "", Instant(0))
        too_late = saga.state is SagaState.COMMITTED or (
            saga.state is SagaState.RUNNING and saga.point_of_no_return_passed
        )
        if (accepted is None) is not too_late:
            self.broken.append(("S10: an abort is refused or accepted wrongly", "an abort"))
        if accepted is not None and accept_abort(accepted, "again", Instant(1)) != accepted:
            self.broken.append(("S10: an abort that is repeated changes something", "an abort"))

    def _way(self, before: Saga, decision: Decision, came: Event | Verb, words: str) -> Way:
        after, now = decision.saga, came.at.now
        left: list[Place] = []
        heard = (came.step, came.direction) if isinstance(came, AttemptEnded) else None
        for intent in before.intents:
            if not intent.in_flight or intent.key == heard:
                continue
            later = after.intent(*intent.key)
            still = later is not None and later.in_flight and later.attempt == intent.attempt
            if isinstance(came, Adopted) or not still:
                left.append((self._place[intent.step], intent.direction))
        return Way(words, self._number(after, now), tuple(left))

    def _in_flight(self, saga: Saga, place: Place) -> Intent:
        intent = saga.intent(self.steps[place[0]].name, place[1])
        if intent is None:
            raise LookupError(f"{place} is not in flight")
        return intent

    def _number(self, saga: Saga, now: int) -> int:
        key = key_of(saga, now)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.sagas)
            self.sagas.append(saga_from(key, self.plan))
            self.facts.append(self._facts(self.sagas[number]))
        return number

    def _facts(self, saga: Saga) -> Facts:
        names = [step.name for step in self.steps]
        return Facts(
            state=saga.state,
            unproven=saga.unproven,
            forced=any(intent.key_forced for intent in saga.intents),
            in_flight=tuple((self._place[i.step], i.direction) for i in saga.intents if i.in_flight),
            excused=tuple(_is_excused(saga, name) for name in names),
            forgettable=tuple(
                n
                for n, step in enumerate(self.steps)
                if step.action.idempotency_window_us and _may_be_forgotten(saga, step.name)
            ),
            landed=tuple(n for n, name in enumerate(names) if self.small.settle and self._has_landed(saga, name)),
            settled_late=tuple(n for n, name in enumerate(names) if _is_settled_late(saga, name)),
        )

    def _has_landed(self, saga: Saga, name: StepName) -> bool:
        step, action = self.plan.by_name[name], saga.intent(name, Direction.ACTION)
        if (
            action is None
            or not action.attempts
            or action.in_flight
            or action.state not in (IntentState.PENDING, IntentState.UNKNOWN)
        ):
            return False
        ended = action.attempts[-1].end_time or 0
        return max(action.attempt_start_time + step.action.timeout_us, ended) + (step.settle_delay_us or 0) < 0


def _is_excused(saga: Saga, name: StepName) -> bool:
    action, compensation = saga.intent(name, Direction.ACTION), saga.intent(name, Direction.COMPENSATION)
    if action is not None and action.state is IntentState.RESOLVED:
        return True
    return (
        compensation is not None
        and compensation.state is IntentState.RESOLVED
        and compensation.resolution is not Resolution.DID_NOT_HAPPEN
    )


def _is_settled_late(saga: Saga, name: StepName) -> bool:
    action = saga.intent(name, Direction.ACTION)
    return action is not None and action.state is IntentState.REJECTED and action.unsettled


def _may_be_forgotten(saga: Saga, name: StepName) -> bool:
    rows = [intent for intent in saga.intents if intent.step == name]
    if not rows or any(intent.in_flight for intent in rows):
        return False
    return all(intent.created_time + WINDOW_US < 0 for intent in rows if intent.direction is not Direction.LOOKUP)
