"""A publisher for tests: it keeps what it gets, and refuses what it is told to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amends.outbox.event import Event


class MemoryPublisher:
    """A broker in memory, for the tests of a participant that publishes.

        publisher = MemoryPublisher()
        async with Relay(sessions, publisher):
            ...                                                     # what is tested
            placed, shipped = await publisher.received(2)

    Attributes:
        events: what arrived, in the order in which it arrived first; what came again is not in it twice.
        deliveries: everything that arrived, repeated ones too.
        faults: raised instead of taking the next event of a key; what is taken out of it heals that key. The key "*"
            stands for all.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.deliveries: list[Event] = []
        self.faults: dict[str, Exception] = {}
        self._known: set[str] = set()
        self._waiting: list[asyncio.Future[None]] = []

    async def publish(self, event: Event) -> None:
        """See `Publisher`."""
        fault = self.faults.get(event.key) or self.faults.get("*")
        if fault is not None:
            raise fault.with_traceback(None)  # it is raised often, and would remember each time
        self.deliveries.append(event)
        if event.event_id not in self._known:
            self._known.add(event.event_id)
            self.events.append(event)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.get_loop().call_soon_threadsafe(_wake, each)

    async def received(self, count: int, *, timeout_s: float = 10.0) -> list[Event]:
        """The events, once there are so many.

        Raises:
            AssertionError: `timeout_s` seconds later there still are fewer.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while len(self.events) < count:
                    arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiting.append(arrival)
                    await arrival
        except TimeoutError:
            told = ", ".join(f"{event.topic}/{event.key}" for event in self.events) or "none"
            raise AssertionError(f"{len(self.events)} of {count} events arrived in {timeout_s} s: {told}") from None
        return list(self.events)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
