"""One turn of a relay: from the moment it may deliver until the outbox is empty, its time is over or it is stopped.

**Order.** The events of a key go out one after the other, in the order of their numbers, each once the broker has the
one before. A key is *in hand* from the moment its events are read until what became of them is written down; it is not
read again before. After a refusal it is *held* for a while, with all that follows.

**At least once.** An event is deleted after the broker took it. A crash between the two, a timeout, an answer that was
lost: it is delivered again, with the same id, and what was delivered after it may come again too, in its order. What
comes for the *first* time always comes in order, because nothing is begun before what precedes it was taken.

**Whose turn.** The lease is renewed long before it ends. A relay that could not renew it begins nothing more when its
own clock says that it is over (counted from before the renewal was asked for, so never too late), and cancels what is
on its way. An event that lands all the same was published before, or is published again by the next relay.

**What stops what.** A key that is refused, or whose event hangs, holds up only itself; those that are tried again get
no more than half of the places, so that hundreds that hang leave room for the others. A broker that is unreachable
(`PublisherUnavailableError`) holds up everything, and no event is counted as refused. A database error ends the turn;
what was delivered and could not be deleted is remembered, so that it is not delivered again for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amends.outbox import statements
from amends.outbox.errors import PublishError, PublisherUnavailableError
from amends.outbox.options import away_delay_s, delay_s, worth_a_warning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amends.outbox.database import Database
    from amends.outbox.options import RelayOptions
    from amends.outbox.publisher import Publisher
    from amends.outbox.statements import WaitingEvent

log = logging.getLogger("amends.outbox")


@dataclass(slots=True)
class Lane:
    """The events of one key that are in hand, and what became of them."""

    events: Sequence[WaitingEvent]
    delivered: list[int] = field(default_factory=list[int])
    refused: tuple[WaitingEvent, Exception] | None = None
    unreachable: PublisherUnavailableError | None = None
    task: asyncio.Task[None] | None = None

    @property
    def again(self) -> bool:
        """Whether its first event was refused before."""
        return self.events[0].attempt_count > 0


class TurnOverError(Exception):
    """It is another relay's turn."""


class Turn:
    """See the module.

    Args:
        holder: who has the turn.
        lease_end: until when, by the loop's clock.
        database: where the outbox is.
        publisher: where to.
        options: the limits.
        signal: set when there may be something to do; the turn clears it.
        delivered: numbers of events that were delivered and could not be deleted yet; the turn keeps it up to date.
    """

    def __init__(
        self,
        *,
        holder: str,
        lease_end: float,
        database: Database,
        publisher: Publisher,
        options: RelayOptions,
        signal: asyncio.Event,
        delivered: set[int],
    ) -> None:
        self._holder, self._lease_end = holder, lease_end
        self._database, self._publisher, self._options = database, publisher, options
        self._signal, self._delivered = signal, delivered
        self._now = asyncio.get_running_loop().time
        self._lease_s = options.lease.total_seconds()
        self._lanes: dict[str, Lane] = {}
        self._held: dict[str, float] = {}  # until when
        self._unreachable_count = 0
        self._paused_until = 0.0
        self.stopping = False

    async def work(self) -> None:
        """Deliver until nothing is left, or until `stopping` is set and what is on its way has ended.

        Raises:
            TurnOverError: it is another's turn.
            Exception: the database's.
        """
        looked_in_vain = False
        try:
            while True:
                self._signal.clear()
                await self._renew()
                await self._write_down()
                if self.stopping and not self._lanes:
                    return
                if await self._begin():
                    continue
                idle = not (self._lanes or self._held or self._paused)
                if idle and looked_in_vain:
                    return
                looked_in_vain = await self._pause() and idle
        finally:
            await self._end()

    @property
    def _paused(self) -> bool:
        return self._now() < self._paused_until

    async def _renew(self) -> None:
        """Begin the lease anew once a third of it is over."""
        asked = self._now()
        if self._lease_end - asked > self._lease_s * 2 / 3:
            return
        if not await self._database.run(lambda session: statements.take_turn(session, self._holder, self._lease_s)):
            raise TurnOverError
        self._lease_end = asked + self._lease_s

    async def _begin(self) -> bool:
        """Read what can be begun and begin it; whether there was any."""
        now = self._now()
        self._held = {key: until for key, until in self._held.items() if until > now}
        free = self._options.keys_at_once - len(self._lanes)
        if self.stopping or self._paused or free <= 0 or len(self._held) >= self._options.held_keys_limit:
            return False
        without = self._lanes.keys() | self._held.keys()
        limit = self._options.batch_size
        again = max(1, self._options.keys_at_once // 2) - sum(lane.again for lane in self._lanes.values())
        waiting = await self._database.run(
            lambda session: statements.next_events(session, without, limit, refused=again > 0)
        )
        by_key: defaultdict[str, list[WaitingEvent]] = defaultdict(list)
        for each in waiting:
            by_key[each.event.key].append(each)
        for key, events in by_key.items():
            lane = Lane(events)
            if free <= 0 or (lane.again and again <= 0):
                continue
            free, again = free - 1, again - lane.again
            self._lanes[key] = lane
            lane.task = asyncio.create_task(self._deliver(lane), name=f"amends-outbox {key}")
            lane.task.add_done_callback(lambda _: self._signal.set())
        return bool(waiting)

    async def _deliver(self, lane: Lane) -> None:
        """Publish a key's events, one after the other, until one is not taken."""
        for each in lane.events:
            left_s = self._lease_end - self._now()
            if left_s <= 0 or self.stopping:
                return
            try:
                async with asyncio.timeout(min(self._options.publish_timeout.total_seconds(), left_s)):
                    await self._publisher.publish(each.event)
            except PublisherUnavailableError as problem:
                lane.unreachable = problem
                return
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # Not we: something that the publisher waited for was cancelled, as clients do when they are closed.
                lane.refused = (each, PublishError("the publisher cancelled it"))
                return
            except Exception as problem:  # noqa: BLE001 - a publisher may raise anything; it is told and tried again
                lane.refused = (each, problem)
                return
            self._unreachable_count = 0
            lane.delivered.append(each.number)

    async def _write_down(self) -> None:
        """Make what the lanes did last, and let go of the keys whose lane has ended."""
        ended = {key: lane for key, lane in self._lanes.items() if lane.task is not None and lane.task.done()}
        self._note_delivered()
        if self._delivered:
            numbers = frozenset(self._delivered)
            await self._database.run(lambda session: statements.forget(session, numbers))
            self._delivered -= numbers
        for key, lane in ended.items():
            if lane.refused is not None:
                await self._hold(key, *lane.refused)
            if lane.unreachable is not None and not self._paused:
                self._wait_for_the_broker(lane.unreachable)
            del self._lanes[key]

    def _note_delivered(self) -> None:
        for lane in self._lanes.values():
            self._delivered.update(lane.delivered)
            lane.delivered.clear()

    async def _hold(self, key: str, refused: WaitingEvent, problem: Exception) -> None:
        told = _told(problem)
        count = refused.attempt_count + 1
        wait_s = delay_s(self._options, count, random.random())
        log.log(
            logging.WARNING if worth_a_warning(count) else logging.DEBUG,
            "event %s (topic %s, key %s) was not taken, attempt %d, the next in %.1f s; later ones of its key wait: %s",
            refused.event.event_id,
            refused.event.topic,
            key,
            count,
            wait_s,
            told,
        )
        await self._database.run(lambda session: statements.note_refusal(session, refused.number, told))
        self._held[key] = self._now() + wait_s

    def _wait_for_the_broker(self, problem: PublisherUnavailableError) -> None:
        self._unreachable_count += 1
        wait_s = away_delay_s(self._options, self._unreachable_count, random.random())
        self._paused_until = self._now() + wait_s
        level = logging.WARNING if worth_a_warning(self._unreachable_count) else logging.DEBUG
        log.log(level, "events wait: the broker can't be reached; the next try is in %.1f s: %s", wait_s, problem)

    async def _pause(self) -> bool:
        """Wait until there may be something to do; whether the time was over before anybody said so."""
        now = self._now()
        instants = [now + self._options.poll_interval.total_seconds(), *self._held.values()]
        if self._paused:
            instants.append(self._paused_until)
        try:
            async with asyncio.timeout(max(0.0, min(instants) - now)):
                await self._signal.wait()
        except TimeoutError:
            return True
        return False

    async def _end(self) -> None:
        """Cancel what is still on its way, and write down what was delivered if the database lets us."""
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._note_delivered()
        with contextlib.suppress(Exception):  # what can't be deleted now is known, and deleted first in the next turn
            await self._write_down()


def _told(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
