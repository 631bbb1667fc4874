"""Where one saga in memory counts: the participants that its pending calls go to. See `engine.shares`.

What the ledger is told that a saga waits for is its one participant. Where it has several it waits for none of them
alone, and goes on with those that have room. If none has it waits for the first, so that it comes back in its turn: it
would be taken up, find no room anywhere and go back again and again, and thousands of these keep everybody waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amends_coordinator.core.states import PENDING
from amends_coordinator.definitions.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amends_coordinator.core.answer import Answer
    from amends_coordinator.core.plan import StepPlan
    from amends_coordinator.core.saga import Saga
    from amends_coordinator.definitions.compiled import CompiledDefinition
    from amends_coordinator.engine.shares import Shares
    from amends_coordinator.ports.directory import Directory


class Standing:
    """Where one saga in memory counts.

    Args:
        shares: the shares of all.
    """

    __slots__ = ("_entered", "_shares", "names", "turned_away")

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._entered: tuple[str, ...] = ()
        self.names: tuple[str, ...] = ()
        """The participants that it has to do with."""
        self.turned_away: tuple[str, ...] = ()
        """Those of them whose share was used up when it came."""

    def move(self, names: tuple[str, ...]) -> None:
        """Have it count where it stands now. Where it stood already it keeps its place."""
        if names == self.names:
            return
        before = self._entered
        for name in before:
            if name not in names:
                self._shares.leave(name)
        entered: list[str] = []
        turned_away: list[str] = []
        for name in names:
            (entered if name in before or self._shares.enter(name) else turned_away).append(name)
        self.names, self._entered, self.turned_away = names, tuple(entered), tuple(turned_away)

    def admits(self, name: str) -> bool:
        """Whether the saga may call this participant: it has its place there, or gets it now."""
        if name not in self.turned_away:
            return True
        if not self._shares.enter(name):
            return False
        self._entered += (name,)
        self.turned_away = tuple(each for each in self.turned_away if each != name)
        return True

    @property
    def is_in_the_way(self) -> bool:
        """Whether others wait for the room that it takes while it waits itself."""
        return any(self._shares.is_behind(name) for name in self.names)

    def waits_for(self, names: tuple[str, ...]) -> str:
        """What the ledger is told that it waits for, when it has to do with these."""
        return names[0] if len(names) == 1 or (names and all(map(self._is_crowded, names))) else ""

    def heard(self, name: str, answer: Answer) -> None:
        """Tell how an attempt of the saga at a participant ended."""
        self._shares.heard(name, answer)

    def leave(self) -> None:
        """The saga leaves memory. Safe to repeat."""
        self.move(())

    def _is_crowded(self, name: str) -> bool:
        """Whether it may make no call there just now, or others wait there for its place."""
        return name in self.turned_away or self._shares.is_behind(name)


def participants_of(saga: Saga, definition: CompiledDefinition, directory: Directory) -> tuple[str, ...]:
    """The participants of a saga's pending calls; of one that has not begun, those that it begins with. Where none is
    chosen, because none serves the method or several do, the service stands for it.
    """
    if saga.begun:
        return places_of(saga)
    places = [_place_to_be(saga, step, definition, directory) for step in saga.plan.first_steps]
    return tuple(dict.fromkeys(places))


def places_of(saga: Saga) -> tuple[str, ...]:
    """The participants of the pending calls of a saga that has begun. Asked at every decision."""
    places = [each.participant or _service(each.method) for each in saga.intents if each.state is PENDING]
    return tuple(dict.fromkeys(places) if len(places) > 1 else places)


def place_of(participant: str, method: str) -> str:
    """Where a call counts: at its participant, or at the service if it has none."""
    return participant or _service(method)


def _place_to_be(saga: Saga, step: StepPlan, definition: CompiledDefinition, directory: Directory) -> str:
    service = _service(step.action.method)
    try:
        named = definition.participant(saga, step.name)
    except PayloadError:
        named = ""  # the input was damaged: whoever drives the saga finds that out, and tells
    return named or _only(directory.serving(service)) or service


def _service(method: str) -> str:
    return method.partition("/")[0]


def _only(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ""
