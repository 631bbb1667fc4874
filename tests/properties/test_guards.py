"""The exploration can fail: without any one of the core's guards it tells how a promise breaks.

Each public function of `core/guards.py` is replaced in turn by what a simpler core would do. A guard that can be taken
away unnoticed is useless, or the exploration lacks a circumstance; a test demands that there is none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType

import pytest

from amends_coordinator.core import decide, forward, guards, operate
from amends_coordinator.core.answer import Answer
from amends_coordinator.core.events import AttemptEnded
from amends_coordinator.core.plan import StepPlan
from amends_coordinator.core.saga import Intent, Saga
from amends_coordinator.core.states import FailurePolicy, Guarantee, IntentState, Outcome, SagaState
from tests.properties.explore.explorer import Explorer, explore
from tests.properties.explore.shapes import Small

KEY, NONE = Guarantee.KEY, Guarantee.NONE


@dataclass(frozen=True, slots=True)
class Without:
    """A guard, what a core without it would say, the small saga that shows the difference, and the broken promise."""

    guard: str
    wrong: Callable[..., object]
    small: Small
    promise: str


def _always(*_: object) -> bool:
    return True


def _never(*_: object) -> bool:
    return False


def _whatever_attempt(intent: Intent | None, _: AttemptEnded) -> bool:
    return intent is not None and intent.in_flight


def _every_refusal(_: Intent, outcome: Outcome) -> bool:
    return outcome in guards.REFUSALS


def _at_once(_: StepPlan, action: Intent) -> int:
    return action.attempt_start_time


def _while_running(saga: Saga) -> bool:
    return saga.state is SagaState.RUNNING


def _not_found(_: StepPlan, __: Intent, answer: Answer) -> bool:
    return answer.status_code == "NOT_FOUND"


def _what_succeeded(intent: Intent) -> bool:
    return intent.state is IntentState.SUCCEEDED


CALM = Small(shape="C-C", outages=False, crashes=False, timeouts=False)
ALONE = Small(shape="C", guarantee=KEY)
WITHOUT = (
    Without("is_open", _whatever_attempt, Small(shape="C", rounds=2), "S2"),
    Without("is_proof", _every_refusal, replace(ALONE, rounds=2), "S4"),
    Without("seal_counts", _always, replace(ALONE, elsewhere=True), "S4"),
    Without("may_be_rejected", _always, Small(shape="R"), "S6"),
    Without("may_be_guessed", _always, Small(shape="P", lookup=False, guarantee=KEY), "S6"),
    Without("may_repeat_action", _always, Small(shape="C", rounds=2, guarantee=NONE, at_most_once=True), "S2"),
    Without("key_expired", _never, replace(ALONE, window=True, aborts=False, timeouts=False), "S2"),
    Without("finds_its_work", _always, Small(shape="C", blind=True), "S4"),
    Without("settles_late", _always, replace(ALONE, settle=True), "S4"),
    Without("settled_time", _at_once, replace(ALONE, settle=True), "S4"),
    Without("abort_applies", _while_running, Small(shape="C-P"), "S6"),
    Without("soft_abort_applies", _always, Small(shape="C-P", soft_aborts=True), "S6"),
    Without("calls_have_landed", _always, Small(shape="(C|C)"), "S5"),
    Without("parked_holds_back", _never, replace(CALM, policy=FailurePolicy.HALT), "S5"),
    Without("stalled_is_passed_over", _never, replace(CALM, outages=True), "L1"),
    Without("nothing_was_there", _not_found, replace(CALM, guarantee=KEY), "S4"),
    Without("rests_on_assumption", _never, ALONE, "S4"),
    Without("may_double", _never, Small(shape="C", guarantee=NONE), "S3"),
    Without("may_have_been_sent", _never, Small(shape="C"), "S12"),
    Without("owes_undoing", _what_succeeded, Small(shape="C", lookup=False), "S4"),
    Without("letter_is_open", _always, Small(shape="R", desk=True), "S8"),
    Without("may_retry_compensation", _always, replace(CALM, desk=True), "S5"),
    Without("may_waive_compensation", _always, replace(CALM, shape="C", desk=True), "S4"),
)


@pytest.mark.parametrize("without", WITHOUT, ids=lambda row: row.guard)
def test_violation_is_found_without_the_guard(without: Without, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2, S3, S4, S5, S6, S8, S12, L1: without one guard of the core the exploration tells how the promise breaks."""
    monkeypatch.setattr(guards, without.guard, without.wrong)
    broken = Explorer(without.small, most_states=60_000, wanted=without.promise).explore().broken
    promises = {story.partition(":")[0] for story in broken}
    assert without.promise in promises, "\n\n".join(broken) or "nothing was found"


@pytest.mark.parametrize("small", {row.small: None for row in WITHOUT}, ids=str)
def test_nothing_is_found_with_all_guards(small: Small) -> None:
    """S1 to S6, S8, S10 to S12, L1: it is the missing guard that is found, nothing else."""
    found = explore(small, most_states=3_000).broken
    assert [story for story in found if not story.startswith("more than")] == []


def _nothing(*_: object) -> None:
    """What a rule would hold up goes on."""


STOPPED = Small(shape="P-R-R", lookup=False, desk=True, terminate=True, crashes=False, aborts=False, timeouts=False)
UNBUILT = Small(shape="(C|C)", lookup=False, bindings=True, crashes=False, aborts=False, timeouts=False)
PLANTED = (
    (forward, "waits_for_calls", _never, replace(CALM, shape="(C|C)", desk=True, terminate=True), "S5"),
    (operate, "_require_predecessors", _nothing, STOPPED, "S3"),
    (decide, "_take_back", _nothing, UNBUILT, "S6"),
    (decide, "_give_up_forgotten", _nothing, replace(ALONE, shape="(C|C)", window=True, rounds=2), "S2"),
)


@pytest.mark.parametrize(("module", "name", "wrong", "small", "promise"), PLANTED, ids=[row[1] for row in PLANTED])
def test_violation_is_found_without_a_rule_of_the_order(
    module: ModuleType,
    name: str,
    wrong: Callable[..., object],
    small: Small,
    promise: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S2, S3, S5, S6: rules that are not one predicate but a place in the order of things are needed, too."""
    monkeypatch.setattr(module, name, wrong)
    broken = Explorer(small, most_states=60_000, wanted=promise).explore().broken
    assert promise in {story.partition(":")[0] for story in broken}, "\n\n".join(broken) or "nothing was found"


def test_every_guard_is_taken_away_once() -> None:
    """Each rule of the core that keeps a promise is shown to be needed."""
    named = {
        name
        for name, value in inspect.getmembers(guards, inspect.isfunction)
        if value.__module__ == guards.__name__ and not name.startswith("_")
    }
    assert {row.guard for row in WITHOUT} == named


def test_refusals_are_three() -> None:
    """S4: what counts as a refusal is a closed set."""
    assert {Outcome.REJECTED, Outcome.REJECTED_SEALED, Outcome.WIRING_FAULT} == guards.REFUSALS
