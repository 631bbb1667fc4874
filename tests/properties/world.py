"""What is really the case outside: kept beside the saga by the tests, from the answers alone, not from its rows.

The promises speak of what happened at participants. The world knows of every call that is on its way, and of every
step whether its action happened, may have happened, certainly did not, or never will, and whether it was undone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from amends_coordinator.core.effects import DIRECTION_OF, CallAction, CallCompensation, CallLookup, CancelCall
from amends_coordinator.core.events import Adopted, AttemptEnded
from amends_coordinator.core.states import Direction, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amends_coordinator.core.effects import Effect
    from amends_coordinator.core.events import Event
    from amends_coordinator.core.ids import StepName


class Happened(Enum):
    """What the answers so far prove about an action."""

    NO = "it did not happen"
    MAYBE = "it may have happened, or may still happen"
    YES = "it happened"
    NEVER = "the participant promised never to run it"


@dataclass(frozen=True, slots=True)
class World:
    """`facts` and `undone` are about steps; `calls` are on their way: (step, direction, attempt)."""

    facts: tuple[tuple[StepName, Happened], ...] = ()
    undone: frozenset[StepName] = frozenset()
    calls: frozenset[tuple[StepName, Direction, int]] = frozenset()

    def happened(self, step: StepName) -> Happened:
        """What is proven about a step's action."""
        return dict(self.facts).get(step, Happened.NO)

    def owes_nothing(self, step: StepName) -> bool:
        """Whether a step has no effect that stands or may stand."""
        return self.happened(step) in (Happened.NO, Happened.NEVER) or step in self.undone

    def after_event(self, event: Event) -> World:
        """The world once an event was heard of, before anything is done about it."""
        match event:
            case AttemptEnded() if (event.step, event.direction, event.attempt) in self.calls:
                calls = self.calls - {(event.step, event.direction, event.attempt)}
                return _answered(replace(self, calls=calls), event)
            case Adopted():
                lost = [step for step, direction, _ in self.calls if direction is Direction.ACTION]
                return replace(_perhaps(self, lost), calls=frozenset())
            case _:
                return self

    def after_effects(self, effects: Iterable[Effect]) -> World:
        """The world once a decision's effects are carried out."""
        world = self
        for effect in effects:
            match effect:
                case CallAction() | CallCompensation() | CallLookup():
                    call = (effect.step, DIRECTION_OF[type(effect)], effect.attempt)
                    world = replace(world, calls=world.calls | {call})
                case CancelCall():
                    world = _cancelled(world, effect)
                case _:
                    pass
        return world


def _answered(world: World, event: AttemptEnded) -> World:
    outcome = event.answer.outcome
    if event.direction is Direction.COMPENSATION:
        nothing_there = event.answer.status_code == "NOT_FOUND" and world.happened(event.step) is Happened.MAYBE
        if outcome is Outcome.SUCCEEDED or (nothing_there and outcome in (Outcome.REJECTED, Outcome.REJECTED_SEALED)):
            return replace(world, undone=world.undone | {event.step})
        return world
    if outcome is Outcome.SUCCEEDED:
        return _fact(world, event.step, Happened.YES)
    if outcome is Outcome.REJECTED_SEALED and (
        event.direction is Direction.ACTION or event.answer.status_code == "NOT_FOUND"
    ):
        return _fact(world, event.step, Happened.NEVER)
    if outcome is Outcome.UNKNOWN and event.direction is Direction.ACTION:
        return _perhaps(world, [event.step])
    return world


def _cancelled(world: World, effect: CancelCall) -> World:
    calls = frozenset(call for call in world.calls if call[:2] != (effect.step, effect.direction))
    return replace(_perhaps(world, [effect.step]), calls=calls)


def _perhaps(world: World, steps: Iterable[StepName]) -> World:
    for step in steps:
        if world.happened(step) is Happened.NO:
            world = _fact(world, step, Happened.MAYBE)
    return world


def _fact(world: World, step: StepName, happened: Happened) -> World:
    facts = dict(world.facts) | {step: happened}
    return replace(world, facts=tuple(sorted(facts.items(), key=lambda fact: fact[0])))
