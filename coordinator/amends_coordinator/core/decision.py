"""What a decision is: the saga after it, the rows to write, and what to do once they are durable."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from amends_coordinator.core.effects import DIRECTION_OF, CallAction, CallCompensation, CallLookup, Effect, WakeAt
from amends_coordinator.core.ids import StepName
from amends_coordinator.core.saga import DeadLetter, Intent, Saga
from amends_coordinator.core.states import Direction
from amends_coordinator.core.values import fill_field, quick


@quick
@dataclass(frozen=True, slots=True)
class Records:
    """The rows that a decision adds or changes, beside the saga's own row. All of them are written together or not at
    all.

    `announced` are the intents of which a new attempt begins; those of them that are called for the first time have no
    request yet: the engine builds it before it writes them.
    """

    intents: tuple[Intent, ...] = ()
    dead_letters: tuple[DeadLetter, ...] = ()
    announced: tuple[Intent, ...] = ()


@quick
@dataclass(frozen=True, slots=True)
class Decision:
    """`saga` after the event; `records` to make durable first; `effects` to carry out afterwards (see effects.py)."""

    saga: Saga
    records: Records
    effects: tuple[Effect, ...]
    changed: bool
    """Whether the saga's row or any other has to be written."""

    def fill_request(self, intent: Intent, request: bytes) -> None:
        """Fill in the request of an intent that this decision has announced: part of making the decision, before it is
        written and before anybody else sees it.
        """
        fill_field(intent, "request", request)

    def fill_participant(self, intent: Intent, participant: str) -> None:
        """Fill in who is called by an intent that this decision has announced: as `fill_request`."""
        fill_field(intent, "participant", participant)

    def fill_output(self, output: bytes | None) -> None:
        """Fill in the output of a saga that this decision has committed: as `fill_request`."""
        fill_field(self.saga, "output", output)

    def followed_by(self, second: Decision) -> Decision:
        """This decision and `second`, which was made on its saga because one of its calls can't be made: one decision,
        to be written as one. What the second one says of a row, of a call or of the next wake-up stands.
        """
        keys = {intent.key: None for intent in (*self.records.intents, *second.records.intents)}
        rows = {intent.key: intent for intent in second.saga.intents}
        announced = {intent.key: None for intent in (*self.records.announced, *second.records.announced)}
        anew = {intent.key for intent in second.records.announced}
        kept = tuple(effect for effect in self.effects if not _is_overruled(effect, rows, anew))
        return Decision(
            saga=second.saga,
            records=Records(
                intents=tuple(rows[key] for key in keys),
                dead_letters=(*self.records.dead_letters, *second.records.dead_letters),
                announced=tuple(rows[key] for key in announced if rows[key].in_flight),
            ),
            effects=(*kept, *second.effects),
            changed=True,
        )


def _is_overruled(
    effect: Effect, rows: Mapping[tuple[StepName, Direction], Intent], anew: Set[tuple[StepName, Direction]]
) -> bool:
    """Whether a second decision has a wake-up of its own, or doesn't make a call, or makes it itself."""
    if isinstance(effect, CallAction | CallCompensation | CallLookup):
        key = (effect.step, DIRECTION_OF[type(effect)])
        return key in anew or not rows[key].in_flight
    return isinstance(effect, WakeAt)
