"""The search can fail: each planted bug is found and named by its promise. For the guards see test_guards.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from amends_coordinator.core import decide, draft, settle
from amends_coordinator.core.answer import Answer
from amends_coordinator.core.draft import Draft
from amends_coordinator.core.effects import CALL_OF, Effect, Finish
from amends_coordinator.core.ids import Instant
from amends_coordinator.core.plan import CallPlan, StepPlan
from amends_coordinator.core.saga import Failure, Intent, Saga
from amends_coordinator.core.states import FailurePolicy, Outcome, SagaState, StepKind
from amends_coordinator.core.transitions import IntentMove
from tests.properties.plans import Options, small_plan
from tests.properties.search import search

HALT = Options(rounds=1, needs_response=True, policy=FailurePolicy.HALT)
Plant = Callable[[pytest.MonkeyPatch], None]


def guess_the_pivot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pivot that nobody can say anything about counts as rejected."""

    original = settle._decide_unknown  # pyright: ignore[reportPrivateUsage]  # what is planted over

    def guess(draft: Draft, step: StepPlan, action: Intent) -> Failure | None:
        if step.kind is not StepKind.PIVOT:
            return original(draft, step, action)
        draft.move(replace(action, unsettled=False), IntentMove.REFUSED_FOR_GOOD)
        return settle.failure_of(draft, action, Answer(outcome=Outcome.REJECTED))

    monkeypatch.setattr(settle, "_decide_unknown", guess)


def forget_orphans(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier incarnation had in flight is repeated as if it had never been sent."""

    def repeat(draft: Draft, found: Saga) -> None:
        for intent in draft.intents:
            if intent.in_flight:
                closed = draft.close_attempt(intent, Answer(outcome=Outcome.NOT_SENT))
                draft.put(replace(closed, next_attempt_time=draft.at.now))

    monkeypatch.setattr(decide, "_settle_orphans", repeat)


def trust_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compensation that finds nothing counts as done, even where the action is known to have happened."""
    original = settle.settle_compensation

    def believe(draft: Draft, step: StepPlan, intent: Intent, answer: Answer) -> None:
        if answer.status_code == "NOT_FOUND":
            draft.move(intent, IntentMove.FOUND_NOTHING)
        else:
            original(draft, step, intent, answer)

    monkeypatch.setattr(decide, "settle_compensation", believe)


def call_without_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of an attempt is not among the records of the decision that makes it."""

    def announce(self: Draft, intent: Intent, deadline_time: Instant) -> None:
        self.effect(CALL_OF[intent.direction](intent.step, intent.attempt + 1, deadline_time))

    monkeypatch.setattr(draft.Draft, "announce", announce)


def compensate_with_an_empty_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compensation is called although it can't find its work."""
    monkeypatch.setattr(CallPlan, "finds_unanswered_work", property(lambda _: True))


def keep_the_end_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told that the saga was compensated."""
    original = Draft.effect

    def effect(self: Draft, effect: Effect) -> None:
        if effect != Finish(SagaState.COMPENSATED):
            original(self, effect)

    monkeypatch.setattr(Draft, "effect", effect)


def forget_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """No due time is ever written down."""

    def never(draft: Draft) -> Instant | None:
        return None

    monkeypatch.setattr(decide, "_due_time", never)


PLANTED: tuple[tuple[Plant, str, Options, str], ...] = (
    (guess_the_pivot, "CP", Options(rounds=1), "S6"),
    (forget_orphans, "C", Options(rounds=1), "S4"),
    (trust_not_found, "C", Options(rounds=1), "S4"),
    (call_without_record, "C", Options(rounds=1), "S1"),
    (compensate_with_an_empty_id, "C", HALT, "S4"),
    (keep_the_end_secret, "C", Options(rounds=1), "S11"),
    (forget_to_come_back, "C", Options(rounds=1), "L1"),
)


@pytest.mark.parametrize(("plant", "order", "options", "promise"), PLANTED, ids=[row[0].__name__ for row in PLANTED])
def test_planted_bug_is_found(
    plant: Plant, order: str, options: Options, promise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S1, S2, S4, S5, S6, S11, L1: with a planted bug the search tells how the promise breaks."""
    plant(monkeypatch)
    broken = search(small_plan(order, options)).broken
    assert any(promise in story.splitlines()[0] for story in broken), "\n\n".join(broken) or "nothing was found"
