"""How many calls each instance has under way, and the queues of those that wait because every instance is full.

An instance that states how many calls it takes at once is never given more. While there is room that costs a call one
counter. When all ready instances of a participant are full, calls wait in order, those that end what was begun
(compensations, lookups) before actions; a call that has ended hands its slot to the first of them. What else may give
room (another process announces itself, one connects again) is looked at now and then while anybody waits.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from amends_coordinator.calls.channels import Connection
    from amends_coordinator.ports.ledger import InstanceRow

LOOK_INTERVAL_S = 0.25
"""How often a queue is looked at although no call has ended."""


class Slot(NamedTuple):
    """Leave to make one call: the instance that has room for it, and the connection to it."""

    instance: InstanceRow
    connection: Connection


class WithdrawnError(Exception):
    """A call isn't wanted any more, and had no slot yet."""


@dataclass(eq=False, slots=True)
class Waiting:
    """A call that waits; `find` takes a slot if there is one. It is its own key, so that it leaves from anywhere."""

    find: Callable[[], Slot | None]
    slot: asyncio.Future[Slot]


@dataclass(slots=True)
class Queue:
    """The calls that wait for one participant, in order."""

    urgent: dict[Waiting, None] = field(default_factory=dict[Waiting, None])
    others: dict[Waiting, None] = field(default_factory=dict[Waiting, None])
    look: asyncio.TimerHandle | None = None


class Capacity:
    """Counts calls by instance, and keeps a queue by participant. To be used on one event loop."""

    def __init__(self) -> None:
        self._under_way: dict[tuple[str, str], int] = {}
        self._queues: dict[str, Queue] = {}
        self._waiting: dict[str, Waiting] = {}
        self._called: set[str] = set()

    def has_room(self, instance: InstanceRow) -> bool:
        """Whether an instance takes one more call; one that states nothing always does."""
        return not instance.capacity or self._under_way.get(_key(instance), 0) < instance.capacity

    def take(self, instance: InstanceRow) -> None:
        """Count a call, until `give_back`. Every call is counted: the instance may say later how many it takes."""
        key = _key(instance)
        self._under_way[key] = self._under_way.get(key, 0) + 1
        self._called.add(instance.participant)

    def give_back(self, instance: InstanceRow) -> None:
        """A call has ended: whoever waits for it first gets its slot at once, so that nobody comes in between."""
        key = _key(instance)
        left = self._under_way[key] - 1
        if left:
            self._under_way[key] = left
        else:
            del self._under_way[key]
        if instance.participant in self._queues:
            self._serve(instance.participant)

    def loads(self) -> list[tuple[str, int, int]]:
        """Participants that were called with how many calls are under way and how many wait. May be asked from any
        thread.
        """
        under_way = dict.fromkeys(list(self._called), 0)
        for (name, _), count in list(self._under_way.items()):
            under_way[name] = under_way.get(name, 0) + count
        waiting = {name: len(queue.urgent) + len(queue.others) for name, queue in list(self._queues.items())}
        return [(name, count, waiting.get(name, 0)) for name, count in sorted(under_way.items())]

    def is_waited_for(self, participant: str) -> bool:
        """Whether calls wait for this participant: a new one has to go behind them."""
        return participant in self._queues

    async def wait(
        self, participant: str, find: Callable[[], Slot | None], *, key: str, urgent: bool, timeout_s: float
    ) -> Slot | None:
        """A slot as soon as it is this call's turn and there is one; None if that takes longer than `timeout_s`.

        Args:
            participant: whose instances are full.
            find: takes a slot at one of them, if there is one. What it raises ends this call's waiting, and no other's.
            key: by which it can be withdrawn; of all calls that wait, its own.
            urgent: whether it goes before those that aren't.
            timeout_s: how long it may wait, in seconds.

        Raises:
            WithdrawnError: it was withdrawn.
        """
        waiting = self._waiting[key] = Waiting(find, asyncio.get_running_loop().create_future())
        queue = self._queues.setdefault(participant, Queue())
        line = queue.urgent if urgent else queue.others
        line[waiting] = None
        self._serve(participant)
        try:
            await asyncio.wait((waiting.slot,), timeout=timeout_s)
        except asyncio.CancelledError:
            if waiting.slot.done() and waiting.slot.exception() is None:
                self.give_back(waiting.slot.result().instance)
            raise
        else:
            return waiting.slot.result() if waiting.slot.done() else None
        finally:
            line.pop(waiting, None)
            if self._waiting.get(key) is waiting:
                del self._waiting[key]
            self._end_if_empty(participant, queue)

    def withdraw(self, key: str) -> None:
        """A call isn't wanted any more: it waits no longer, unless it has got a slot already."""
        waiting = self._waiting.get(key)
        if waiting is not None and not waiting.slot.done():
            waiting.slot.set_exception(WithdrawnError())

    def _serve(self, participant: str) -> None:
        """Hand out slots, to each in its turn, as long as there are any; look again later if calls are left."""
        queue = self._queues[participant]
        for line in (queue.urgent, queue.others):
            while line:
                first = next(iter(line))
                if first.slot.done():  # withdrawn
                    del line[first]
                    continue
                try:
                    slot = first.find()
                except Exception as error:  # noqa: BLE001 - whoever gives back a slot has its answer in hand
                    del line[first]
                    first.slot.set_exception(error)
                    continue
                if slot is None:
                    self._look_later(participant, queue)
                    return
                del line[first]
                first.slot.set_result(slot)
        self._end_if_empty(participant, queue)

    def _look_later(self, participant: str, queue: Queue) -> None:
        if queue.look is None:
            queue.look = asyncio.get_running_loop().call_later(LOOK_INTERVAL_S, self._look, participant, queue)

    def _look(self, participant: str, queue: Queue) -> None:
        queue.look = None
        self._serve(participant)

    def _end_if_empty(self, participant: str, queue: Queue) -> None:
        if queue.urgent or queue.others or self._queues.get(participant) is not queue:
            return
        del self._queues[participant]
        if queue.look is not None:
            queue.look.cancel()


def _key(instance: InstanceRow) -> tuple[str, str]:
    # Not its id: a process that was killed and is back at its address has a new one, while the old one's lease holds.
    return instance.participant, instance.address
