"""How the room in memory is shared out: how many of the sagas held there have to do with which participant.

Overview. A saga has to do with the participants of its pending calls: under way, waiting for a slot, or to be repeated
later. It counts at each of them from the moment it is in memory, and no participant has more than its share: half of
the room, so that one that is slow, full or hung always leaves the other half to everybody else. A saga that comes to a
participant whose share is used up makes no call: it goes back to the ledger, which knows what it waits for, and from
there it is claimed, in its turn, when there is room. New sagas that would begin at such a participant wait in the
ledger from the start, and nobody waits behind them.

Pace. A participant that has left ten attempts in a row unanswered (it is down, hung or unreachable) gets only a few
until it answers again; thousands that all try and fail cost everybody's time, and what they learn a few learn too. Each
answer then lets one more in, so that one that has just come back isn't overrun.

A saga that waits for its next attempt leaves memory at once where others wait for its room, so that they take turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from amends_coordinator.core.states import Outcome
from amends_coordinator.ports.ledger import Room
from amends_coordinator.ports.participants import FULL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from amends_coordinator.core.answer import Answer

UNANSWERED_IN_A_ROW = 10
"""So many attempts without any answer say that a participant is not there; fewer may be chance."""

PROBING = 16
"""How many sagas go on trying while a participant is not there."""

ROOM_WORTH_A_PASS = 0.1
"""The part of a share that has to be free before sagas are claimed early: a claim costs a transaction."""

_NO_ANSWER = frozenset({"", "DEADLINE_EXCEEDED", "UNAVAILABLE"})


@dataclass(slots=True)
class Share:
    """One participant's part.

    `held`: sagas in memory that count. `unanswered`: attempts in a row that nobody answered. `pace`: how many it may
    have until it is trusted again; 0: as many as everybody. `behind`: sagas may wait for it in the ledger.
    """

    held: int = 0
    unanswered: int = 0
    pace: int = 0
    behind: bool = False

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to remember."""
        return not (self.held or self.unanswered or self.pace or self.behind)


class Shares:
    """The shares of all participants, by name.

    Args:
        most: the share of one participant.
        room_made: called when sagas that wait for one in the ledger can be claimed, and it is worth it.
    """

    def __init__(self, most: int, *, room_made: Callable[[], None]) -> None:
        self._most = most
        self._room_made = room_made
        self._shares: dict[str, Share] = {}
        self._marks = 0

    def enter(self, name: str) -> bool:
        """Count a saga at a participant, if there is room for it."""
        share = self._shares.get(name)
        if share is None:
            share = self._shares[name] = Share()
        if share.held >= self._limit(share):
            share.behind = True
            self._marks += 1
            return False
        share.held += 1
        return True

    def leave(self, name: str) -> None:
        """Count it there no longer."""
        share = self._shares[name]
        share.held -= 1
        if not share.behind:
            if not share.held and share.is_blank:
                del self._shares[name]
        elif not share.unanswered:
            limit = self._limit(share)
            if limit - share.held >= max(1, int(limit * ROOM_WORTH_A_PASS)):
                self._room_made()

    def is_behind(self, name: str) -> bool:
        """Whether sagas may wait in the ledger for this participant."""
        share = self._shares.get(name)
        return share is not None and (share.behind or share.held > self._limit(share))

    def leave_waiting(self, names: Iterable[str]) -> None:
        """Tell that a saga was just written that waits in the ledger for these participants."""
        self._marks += 1
        for name in names:
            self._shares.setdefault(name, Share()).behind = True

    def heard(self, name: str, answer: Answer) -> None:
        """Tell how an attempt at a participant ended."""
        if answer.outcome is not Outcome.SUCCEEDED and not _is_answer(answer):
            if answer.reason != FULL:
                self._unanswered(name)
            return
        share = self._shares.get(name)
        if share is None or not (share.unanswered or share.pace):
            return
        share.unanswered = 0
        if share.pace:
            share.pace = share.pace + 1 if share.pace < self._most else 0

    def _unanswered(self, name: str) -> None:
        share = self._shares.setdefault(name, Share())
        share.unanswered += 1
        if share.unanswered >= UNANSWERED_IN_A_ROW:
            share.pace = min(PROBING, self._most)

    def _limit(self, share: Share) -> int:
        return share.pace or self._most

    def room(self, *, is_served: Callable[[str], bool]) -> ClaimRoom:
        """How many sagas may be claimed just now because of what they wait for.

        Args:
            is_served: whether one participant serves a service, so that those that had nobody to call, or did not know
                whom, need not go slowly.
        """
        for name, share in self._shares.items():
            if share.unanswered and is_served(name):
                share.unanswered = share.pace = 0
        left = {name: max(0, self._limit(share) - share.held) for name, share in self._shares.items()}
        return ClaimRoom(Room(each=self._most, left=left), self._marks)

    def claimed(self, room: ClaimRoom, taken: dict[str, int], *, all_that_fit: bool) -> None:
        """Tell what a claim has found: of which participants' sagas none is left, and of which there may be more.

        Args:
            room: what the claim was given.
            taken: how many it took, by participant.
            all_that_fit: whether it took everything that there was room for.
        """
        for name, count in taken.items():
            if count >= room.room.left.get(name, room.room.each):
                self._shares.setdefault(name, Share()).behind = True
        if not all_that_fit or room.marks != self._marks:
            return
        for name, share in tuple(self._shares.items()):
            left = room.room.left.get(name, room.room.each)
            if share.behind and taken.get(name, 0) < left:
                share.behind = False
                if share.is_blank:
                    del self._shares[name]


@dataclass(frozen=True, slots=True)
class ClaimRoom:
    """The room that a claim is given, and by which to know whether sagas were left waiting since."""

    room: Room
    marks: int


def _is_answer(answer: Answer) -> bool:
    """Whether a participant answered at all, whatever it said."""
    if answer.outcome is Outcome.NOT_SENT:
        return bool(answer.status_code)
    return answer.outcome is not Outcome.UNKNOWN or answer.status_code not in _NO_ANSWER
