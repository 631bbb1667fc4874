"""What may happen to a saga beside the answers to its calls: time, crashes, aborts, people."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from amends_coordinator.core.decide import decide
from amends_coordinator.core.events import Adopted, AttemptEnded, BindingFailed, DriverFailed, Event, Moment, Woken
from amends_coordinator.core.ids import Instant
from amends_coordinator.core.operate import accept_abort
from amends_coordinator.core.states import Resolution, SagaState
from amends_coordinator.core.verbs import (
    AskFirst,
    ResolveDeadLetter,
    RetryDeadLetter,
    RunNow,
    Terminate,
    Verb,
)
from tests.properties.explore.canonical import NODE
from tests.properties.explore.shapes import FAR_US, GRACE_US, TICK_US

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amends_coordinator.core.decision import Decision
    from amends_coordinator.core.saga import Intent, Saga
    from tests.properties.explore.shapes import Small

PERSON = "somebody"
LONG_US = 20 * TICK_US
"""For how long nobody drives a saga after some crashes: longer than every budget and every window."""


def moment(now: int) -> Moment:
    """A moment at the only node."""
    return Moment(Instant(now), NODE, 0.0, GRACE_US)


NOW = moment(0)


def answer_times(intent: Intent, small: Small) -> tuple[int, ...]:
    """When a call in flight ends: one tick after it began, or now; perhaps so late that keys are forgotten."""
    soon = max(0, intent.attempt_start_time + TICK_US)
    return (soon, soon + LONG_US) if small.window or small.late else (soon,)


def events(saga: Saga, small: Small) -> Iterator[Event]:
    """What its owner, or the next one, may decide next beside the answers to its calls."""
    if saga.due_time is not None and saga.due_time < FAR_US:
        yield Woken(moment(max(0, saga.due_time)))
        if small.late:
            yield Woken(moment(max(0, saga.due_time) + LONG_US))
    if small.crashes and not _is_at_rest(saga):
        yield Adopted(NOW)
        yield Adopted(moment(LONG_US))
    if small.driver_fails and not _is_at_rest(saga):
        yield DriverFailed(NOW, "")


def _is_at_rest(saga: Saga) -> bool:
    return saga.due_time is None


def written_by_others(saga: Saga, small: Small) -> Iterator[tuple[str, Saga]]:
    """What others write into the saga's row without a decision: an abort that is accepted, and the time that is up."""
    if small.aborts and not saga.abort_requested:
        aborted = accept_abort(saga, "", Instant(0))
        if aborted is not None and aborted is not saga:
            yield "an abort is accepted", aborted
    if small.timeouts and saga.state is SagaState.RUNNING and saga.deadline_time > 0:
        late = replace(saga, deadline_time=Instant(0), due_time=Instant(0))
        yield "the saga's time is up", late


def verbs(saga: Saga, small: Small) -> Iterator[Verb]:
    """What people may ask for; the core refuses some of it."""
    if small.desk:
        for letter in saga.dead_letters:
            if letter.closed_time is not None:
                continue
            yield RetryDeadLetter(at=NOW, letter=letter.id)
            if small.window:
                yield RetryDeadLetter(at=NOW, letter=letter.id, forced=True)
            if not small.resolves:
                continue
            yield AskFirst(at=NOW, letter=letter.id)
            for resolution in Resolution:
                response = b"told" if resolution is Resolution.HAPPENED else None
                yield ResolveDeadLetter(
                    at=NOW, letter=letter.id, resolution=resolution, person=PERSON, response=response
                )
        if small.resolves:
            yield RunNow(at=NOW)
    if small.terminate:
        yield Terminate(at=NOW, reason="")


def with_failed_bindings(decision: Decision, event: Event, small: Small) -> Iterator[Decision]:
    """The decision as it stands, and what becomes of it where a new request can't be built."""
    yield decision
    if not small.bindings:
        return
    for intent in decision.records.announced:
        if intent.attempt == 1:
            beside = tuple(other.key for other in decision.records.announced if other is not intent)
            second = decide(decision.saga, BindingFailed(event.at, intent.step, intent.direction, "", beside))
            yield from with_failed_bindings(decision.followed_by(second), event, small)


def told(what: Event | Verb | str) -> str:
    """An event in words."""
    match what:
        case str():
            return what
        case AttemptEnded():
            return f"{what.step} {what.direction.lower()}: {_said(what)}"
        case Adopted():
            return "another incarnation takes it over" + (" after a long time" if what.at.now else "")
        case Woken():
            return "its time has come"
        case RetryDeadLetter():
            return f"a person retries {what.letter}" + (" by force" if what.forced else "")
        case ResolveDeadLetter():
            return f"a person resolves {what.letter}: {what.resolution}"
        case AskFirst():
            return f"the lookup of {what.letter} is asked before a person is believed"
        case _:
            return type(what).__name__


def _said(event: AttemptEnded) -> str:
    answer = event.answer
    code = f" {answer.status_code}" if answer.status_code else ""
    return f"{answer.outcome}{code}{' and abort' if answer.abort_reason else ''}"
