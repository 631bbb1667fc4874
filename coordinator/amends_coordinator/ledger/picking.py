"""Which of the sagas that are due a claim takes: as many as it wants, but of those that wait for one participant no
more than there is room for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amends_coordinator.core.ids import SagaId
    from amends_coordinator.ports.ledger import Room


class Picking:
    """Sagas are offered one after the other, in the order in which they come.

    Args:
        limit: how many are wanted.
        held: those that are never taken.
        room: how many may wait for one participant.
    """

    def __init__(self, *, limit: int, held: frozenset[SagaId], room: Room) -> None:
        self._limit = limit
        self._held = held
        self._room = room
        self._waiting: dict[str, int] = {}
        self.picked: dict[SagaId, None] = {}
        self.crowded: set[str] = {name for name, left in room.left.items() if left <= 0}
        """The participants of whose sagas no more are taken; there is no use in offering any."""

    @property
    def wanted(self) -> int:
        """How many more are wanted."""
        return self._limit - len(self.picked)

    @property
    def passed_over(self) -> int:
        """How many of the sagas that are offered again may be held or picked already."""
        return len(self._held) + len(self.picked)

    def offer(self, saga_id: SagaId, waits_for: str) -> bool:
        """Take a saga if it fits; answers whether it does. `waits_for` is "" where it doesn't matter."""
        if self.wanted <= 0 or saga_id in self._held or saga_id in self.picked or waits_for in self.crowded:
            return False
        self.picked[saga_id] = None
        if waits_for:
            count = self._waiting[waits_for] = self._waiting.get(waits_for, 0) + 1
            if count >= self._room.left.get(waits_for, self._room.each):
                self.crowded.add(waits_for)
        return True
