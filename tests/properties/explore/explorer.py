"""Visits every state of a small saga together with its world, breadth first, and tells the shortest way to a violation.

A state is a saga that the core can tell apart, and for every step what is really the case at its participant. From each
state everything goes on that can: any answer to any call in flight, copies of calls that arrive late (also after the
saga has ended), time, crashes, aborts, people.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amends_coordinator.core.states import SagaState
from tests.properties.explore.graph import Graph
from tests.properties.explore.participants import Participant
from tests.properties.explore.truths import falsehoods

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from amends_coordinator.core.plan import Plan
    from tests.properties.explore.graph import Way
    from tests.properties.explore.shapes import Small

State = tuple[int, ...]
"""The number of the saga, then for each step the number of its truth."""


@dataclass(slots=True)
class Findings:
    """What an exploration saw. `broken` holds one story per violation, at most a few."""

    states: int = 0
    sagas: int = 0
    decisions: int = 0
    broken: list[str] = field(default_factory=list[str])


class Explorer:
    """One exploration.

    Args:
        small: the small saga and what may happen to it.
        plan: its plan, where its steps differ in their options.
        most_states: more of them are a finding, so that no exploration runs for ever.
        enough: with so many stories of violations it stops.
        wanted: with a violation of this promise it stops at once.
    """

    def __init__(
        self,
        small: Small,
        plan: Plan | None = None,
        *,
        most_states: int = 2_000_000,
        enough: int = 3,
        wanted: str | None = None,
    ) -> None:
        self.graph = Graph(small, plan)
        self.findings = Findings()
        self._participants = [Participant(step, small) for step in self.graph.steps]
        self._most_states = most_states
        self._enough = enough
        self._wanted = wanted
        self._came: dict[State, tuple[State | None, str]] = {}
        self._queue: deque[State] = deque()
        self._told: set[str] = set()

    def explore(self) -> Findings:
        """Visit everything."""
        start: State = (-1, *(participant.start for participant in self._participants))
        for way in self.graph.starts():
            self._reach(start, way.words, self._follow(start, way))
        self._fetch_complaints(None)
        while self._queue and len(self.findings.broken) < self._enough:
            state = self._queue.popleft()
            for words, after in self._next(state):
                if after not in self._came:
                    self._reach(state, words, after)
            if self.graph.broken:
                self._fetch_complaints(state)
            if len(self._came) > self._most_states:
                self.findings.broken.append(f"more than {self._most_states} states: something doesn't come to an end")
                break
        self.findings.sagas = len(self.graph.sagas)
        if len(self.findings.broken) < self._enough:
            self._demand_healing()
        return self.seen()

    def walk(self, chance: Random, *, length: int) -> None:
        """Go one way of very many: whatever happens next is left to chance, until nothing can."""
        start: State = (-1, *(participant.start for participant in self._participants))
        ways = [(way.words, self._follow(start, way)) for way in self.graph.starts()]
        came: State | None = None
        for _ in range(length):
            if self.graph.broken:
                self._fetch_complaints(came)
            if not ways:
                break
            words, state = chance.choice(ways)
            if state not in self._came:
                self._reach(start if came is None else came, words, state)
            came = state
            ways = list(self._next(state))

    def seen(self, remark: str = "") -> Findings:
        """What was seen so far; the remark goes with every story."""
        self.findings.states, self.findings.sagas = len(self._came), len(self.graph.sagas)
        self.findings.decisions = self.graph.decisions
        self.findings.broken = [f"{story}\n{remark}" if remark else story for story in self.findings.broken]
        return self.findings

    def _next(self, state: State) -> Iterator[tuple[str, State]]:
        graph, number = self.graph, state[0]
        facts = graph.facts[number]
        for place in facts.in_flight:
            at = place[0] + 1
            for answer, truth in self._participants[place[0]].responses(state[at], place[1]):
                answered = (number, *state[1:at], truth, *state[at + 1 :])
                for way in graph.answered(number, place, answer):
                    yield way.words, self._follow(answered, way)
        for way in graph.ways(number):
            yield way.words, self._follow(state, way)
        for step, participant in enumerate(self._participants):
            for words, truth in participant.arrivals(state[step + 1]):
                yield words, (*state[: step + 1], truth, *state[step + 2 :])
        for step in facts.forgettable:
            truth = self._participants[step].forgotten(state[step + 1])
            yield f"the participant of step {step} forgets", (*state[: step + 1], truth, *state[step + 2 :])

    def _follow(self, state: State, way: Way) -> State:
        landed = self.graph.facts[way.target].landed
        if not way.left and not landed:
            return (way.target, *state[1:])
        truths = list(state)
        truths[0] = way.target
        for step, direction in way.left:
            truths[step + 1] = self._participants[step].left(truths[step + 1], direction)
        for step in landed:
            truths[step + 1] = self._participants[step].landed(truths[step + 1])
        return tuple(truths)

    def _reach(self, parent: State, words: str, state: State) -> None:
        self._came[state] = (parent, words)
        self._queue.append(state)
        facts = self.graph.facts[state[0]]
        if facts.state is SagaState.RUNNING:
            return
        truths = [p.truths[number] for p, number in zip(self._participants, state[1:], strict=True)]
        for falsehood in falsehoods(self.graph, facts, truths):
            self._complain(falsehood, state, f"now {', '.join(str(truth) for truth in truths)}")

    def _fetch_complaints(self, state: State | None) -> None:
        for complaint, words in self.graph.broken:
            self._complain(complaint, state, words)
        self.graph.broken.clear()

    def _complain(self, complaint: str, state: State | None, last: str) -> None:
        if complaint not in self._told:
            self._told.add(complaint)
            self.findings.broken.append("\n".join((complaint, *self._story(state), f"  {last}")))
            if complaint.partition(":")[0] == self._wanted:
                self._enough = 0

    def _story(self, state: State | None) -> list[str]:
        lines: list[str] = []
        while state is not None and state in self._came:
            parent, words = self._came[state]
            lines.append(f"  {words} -> {self.graph.facts[state[0]].state}")
            state = parent
        return lines[::-1]

    def _demand_healing(self) -> None:
        """L1: with participants that answer OK from now on, every saga ends or waits for a person."""
        good: set[int] = set()
        for number in range(self.findings.sagas):
            path: dict[int, None] = {}
            current: int | None = number
            while current is not None and current not in good and current not in path:
                path[current] = None
                following = self.graph.healed(current)
                if following is None:
                    saga = self.graph.sagas[current]
                    if saga.state.ended or saga.attention_required:
                        good.add(current)
                        break
                current = following
            if current is None or (current in path and current not in good):
                state = next((state for state in self._came if state[0] == number), None)
                self._complain("L1: participants answer OK from here on, and the saga never ends", state, "for ever")
                return
            good.update(path)
        self._fetch_complaints(None)


def explore(small: Small, *, most_states: int = 2_000_000) -> Findings:
    """Explore a small saga."""
    return Explorer(small, most_states=most_states).explore()
