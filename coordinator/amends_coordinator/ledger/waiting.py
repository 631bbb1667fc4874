"""Decisions that wait for their transaction, and which of them go into the next one.

A batch holds at most one decision per saga, apart from starts that compete for an id, and decisions about one saga keep
their order. A decision whose rows are locked by somebody else is held up: it waits for a pause that grows each time,
and with it whatever comes later about the same saga, and nothing else.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from amends_coordinator.ports.ledger import NewSaga

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amends_coordinator.core.ids import SagaId
    from amends_coordinator.ledger.batch import Decision

BATCH_LIMIT = 512
"""Decisions in one transaction at most."""

FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 0.5
"""Pauses of a decision whose saga's row is found locked, which costs the batch nothing."""

FIRST_PAUSE_ALONE_S = 0.05
LONGEST_PAUSE_ALONE_S = 2.0
"""Pauses of one that has to wait for a lock to find out."""

LARGEST_DOUBLING = 16

LONELY_LIMIT = 1_000


class WaitingDecisions:
    """Belongs to the writer's thread."""

    def __init__(self) -> None:
        self._waiting: deque[Decision] = deque()
        self._lonely: dict[SagaId, None] = {}
        """Sagas whose decisions travel alone, until one of them is answered; the newest are remembered."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, decision: Decision) -> None:
        """Put a decision behind all others."""
        decision.alone = decision.saga_id in self._lonely
        self._waiting.append(decision)

    def isolate(self, decision: Decision) -> None:
        """Have this and later decisions about its saga travel alone: a lock of somebody's held up the whole batch."""
        decision.alone = True
        self._lonely[decision.saga_id] = None
        if len(self._lonely) > LONELY_LIMIT:
            self._lonely.pop(next(iter(self._lonely)))

    def answered(self, decision: Decision) -> None:
        """Whatever kept the saga's rows has let go of them."""
        self._lonely.pop(decision.saga_id, None)

    def hold_up(self, decision: Decision, now_s: float) -> None:
        """Put back a decision whose rows are locked; it stays before whatever came later."""
        first_s, longest_s = FIRST_PAUSE_S, LONGEST_PAUSE_S
        if decision.alone:
            first_s, longest_s = FIRST_PAUSE_ALONE_S, LONGEST_PAUSE_ALONE_S
        decision.not_before_s = now_s + min(longest_s, first_s * 2 ** min(decision.held_up, LARGEST_DOUBLING))
        decision.held_up += 1
        self._waiting.appendleft(decision)

    def take_batch(self, now_s: float, beside: Sequence[Decision] = ()) -> list[Decision]:
        """Take the decisions that travel together next, beside those that do already, and leave the others in their
        order.
        """
        if not self._waiting:
            return []
        chosen: list[Decision] = []
        room = BATCH_LIMIT - len(beside)
        later: deque[Decision] = deque()
        open_to_starts = {decision.saga_id: isinstance(decision.content, NewSaga) for decision in beside}
        for decision in self._waiting:
            is_start = isinstance(decision.content, NewSaga)
            ready = decision.not_before_s <= now_s and not decision.alone
            fits = decision.saga_id not in open_to_starts or (is_start and open_to_starts[decision.saga_id])
            if ready and fits and len(chosen) < room:
                chosen.append(decision)
            else:
                later.append(decision)
            open_to_starts[decision.saga_id] = is_start and fits and ready
        self._waiting = later
        return chosen

    def take_alone(self, now_s: float) -> Decision | None:
        """Take the first decision that has to travel alone and whose pause is over."""
        for position, decision in enumerate(self._waiting):
            if decision.alone and decision.not_before_s <= now_s:
                del self._waiting[position]
                return decision
        return None

    def pause_s(self, now_s: float) -> float | None:
        """For how long nothing can be taken; None: nothing waits."""
        first = min((decision.not_before_s for decision in self._waiting), default=None)
        return None if first is None else max(0.0, first - now_s)

    def remove(self, chosen: Callable[[Decision], bool]) -> list[Decision]:
        """Take all that are chosen, ready or not."""
        removed = [decision for decision in self._waiting if chosen(decision)]
        if removed:
            self._waiting = deque(decision for decision in self._waiting if not chosen(decision))
        return removed
