"""When a saga got on last: what counts as getting on, and that repeating a call doesn't."""

from __future__ import annotations

from amends_coordinator.core.decide import decide
from amends_coordinator.core.events import Adopted, AttemptEnded, DriverFailed, Event, Started, Woken
from amends_coordinator.core.ids import StepName
from amends_coordinator.core.operate import accept_abort, decide_verb
from amends_coordinator.core.saga import Saga
from amends_coordinator.core.states import Direction, SagaState
from amends_coordinator.core.verbs import RunNow
from tests.unit.core.sagas import SECOND, at, saga_of, step
from tests.unit.core.stories import answer

RESERVE, PAY = StepName("reserve"), StepName("pay")


def after(saga: Saga, *events: Event) -> Saga:
    """The saga after these events; each of them has to change it."""
    for event in events:
        decision = decide(saga, event)
        assert decision.changed
        saga = decision.saga
    return saga


def ended(step_name: StepName, attempt: int, said: str, seconds: float) -> AttemptEnded:
    """The end of an attempt of an action."""
    return AttemptEnded(
        at=at(seconds), step=step_name, direction=Direction.ACTION, attempt=attempt, answer=answer(said)
    )


def got_on(saga: Saga) -> float:
    """When it got on last, in seconds."""
    return saga.progress_time / SECOND


def begun() -> Saga:
    """A saga whose first call was announced at 1 s."""
    return after(saga_of(step("reserve"), step("pay", by_key=True)), Started(at(1)))


def test_announcing_and_settling_get_it_on() -> None:
    """F01: a saga that announces its first call, and one whose call is settled, has got on."""
    saga = begun()
    assert got_on(saga) == 1
    assert got_on(after(saga, ended(RESERVE, 1, "OK", 3))) == 3


def test_repeating_a_call_is_no_progress() -> None:
    """F01: while a participant is away its saga stalls, however often it is called, and whoever drives it."""
    saga = after(begun(), ended(RESERVE, 1, "UNAVAILABLE", 2), Woken(at(4)), Adopted(at(5)))
    assert saga.intents[0].attempt == 3
    assert got_on(saga) == 1
    assert saga.updated_time == 5 * SECOND
    assert got_on(after(saga, DriverFailed(at(10), "broken"))) == 1


def test_a_change_of_the_sagas_state_is_progress() -> None:
    """F01: rolling back begins anew, and so does what is owed then."""
    saga = after(begun(), ended(RESERVE, 1, "OK", 3), ended(PAY, 1, "FAILED_PRECONDITION", 5))
    assert saga.state is SagaState.COMPENSATING
    assert got_on(saga) == 5


def test_what_a_person_does_is_progress() -> None:
    """F01: nobody who has just been looked after is listed as stalled."""
    saga = after(begun(), ended(RESERVE, 1, "UNAVAILABLE", 2))
    assert got_on(decide_verb(saga, RunNow(at=at(6))).saga) == 6
    aborted = accept_abort(saga, "enough", at(7).now)
    assert aborted is not None
    assert got_on(aborted) == 7
