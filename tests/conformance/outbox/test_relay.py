"""What a relay promises: everything is delivered, in order per key, and nothing stops what it has no part in."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import insert, select, text, update

from amends.outbox import Event, MemoryPublisher, PublishError, PublisherUnavailableError, Relay, RelayOptions, publish
from amends.outbox.tables import OUTBOX, RELAY
from tests.conformance.outbox.rigs import QUICK, Rig, texts
from tests.waiting import eventually

ONE_HOUR = timedelta(hours=1)


async def test_everything_is_delivered_in_order_and_then_forgotten(rig: Rig) -> None:
    """O2, O3: the events of each key arrive in the order in which they were published; the outbox is empty then."""
    publisher = MemoryPublisher()
    for turn in range(3):
        for key in ("a", "b", "c"):
            await rig.publish(key, *(f"{key}{turn}.{number}" for number in range(10)))
    async with Relay(rig.sessions, publisher, replace(QUICK, batch_size=7)):
        await publisher.received(90)
        await eventually(lambda: rig.written() == [], what="what is delivered is deleted")
    for key in ("a", "b", "c"):
        assert texts(publisher.events, key) == [f"{key}{turn}.{number}" for turn in range(3) for number in range(10)]
    assert len(publisher.deliveries) == 90


async def test_an_event_arrives_as_it_was_published(rig: Rig) -> None:
    """O2: nothing of an event changes on its way through the database."""
    publisher = MemoryPublisher()
    event_id = await rig.run(
        lambda session: publish(
            "orders.placed",
            "order-1",
            b"\x00{}",
            content_type="application/json",
            headers={"x-tenant": "blue"},
            session=session,
        )
    )
    async with Relay(rig.sessions, publisher, QUICK):
        (event,) = await publisher.received(1)
    assert (event.event_id, event.topic, event.key) == (event_id, "orders.placed", "order-1")
    assert (event.payload, event.content_type, event.type_name) == (b"\x00{}", "application/json", "")
    assert event.headers == {"x-tenant": "blue"}
    assert event.create_time.utcoffset() == timedelta(0)


async def test_a_relay_hears_at_once_of_what_its_process_published(rig: Rig) -> None:
    """O2: what this process commits is delivered without waiting for the next look; so is what a thread commits."""
    publisher = MemoryPublisher()
    async with Relay(rig.sessions, publisher, replace(QUICK, poll_interval=ONE_HOUR)):
        await rig.publish("a", "first")
        await publisher.received(1)
        await rig.publish("a", "second")
        await publisher.received(2)
        await asyncio.to_thread(rig.publish_here, "a", "third")
        assert texts(await publisher.received(3)) == ["first", "second", "third"]


async def test_a_key_that_is_refused_holds_up_no_other(rig: Rig) -> None:
    """O4: a refused event waits with what follows it; other keys go on; healed, everything arrives in order."""
    publisher = MemoryPublisher()
    publisher.faults["a"] = PublishError("no such topic")
    await rig.publish("a", "a1", "a2")
    await rig.publish("b", "b1", "b2")
    async with Relay(rig.sessions, publisher, QUICK):
        await publisher.received(2)
        await eventually(lambda: rig.refusals() >= 2, what="it is tried again")
        await rig.publish("b", "b3")
        await publisher.received(3)
        assert texts(publisher.events) == ["b1", "b2", "b3"]
        await eventually(lambda: rig.written() == [("a", "a1"), ("a", "a2")], what="what is delivered is deleted")
        del publisher.faults["a"]
        await publisher.received(5)
    assert texts(publisher.events, "a") == ["a1", "a2"]


async def test_a_refusal_is_written_beside_its_event(rig: Rig) -> None:
    """O4: whoever looks into the outbox sees what is held up, since how many tries, and why."""
    publisher = MemoryPublisher()
    publisher.faults["a"] = PublishError("no such topic")
    await rig.publish("a", "a1", "a2")
    async with Relay(rig.sessions, publisher, QUICK):
        await eventually(lambda: rig.refusals() >= 1, what="it is refused")
    with rig.sync_sessions() as session:
        first, second = session.execute(select(OUTBOX).order_by(OUTBOX.c.id)).all()
    assert (first.attempt_count >= 1, first.last_error) == (True, "PublishError: no such topic")
    assert (second.attempt_count, second.last_error) == (0, None)


class Hanging(MemoryPublisher):
    """Never answers for some keys, until it is told to.

    Attributes:
        hangs: set once it was asked.
        released: to be set by the test.
        cancelled: set once it was cancelled meanwhile.
    """

    def __init__(self, *keys: str) -> None:
        super().__init__()
        self.keys = frozenset(keys)
        self.hangs, self.released, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def publish(self, event: Event) -> None:
        """See `Publisher`."""
        if event.key in self.keys:
            self.hangs.set()
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        await super().publish(event)


async def test_an_event_that_hangs_holds_up_only_its_key(rig: Rig) -> None:
    """O4: while the broker doesn't answer for one key, the events of all others are delivered, also later ones."""
    publisher = Hanging("a")
    await rig.publish("a", *(f"a{number}" for number in range(10)))
    async with Relay(rig.sessions, publisher, replace(QUICK, batch_size=5, poll_interval=ONE_HOUR)):
        await publisher.hangs.wait()
        for number in range(3):
            await rig.publish("b", f"b{number}")
        assert texts(await publisher.received(3)) == ["b0", "b1", "b2"]
        publisher.released.set()
        await publisher.received(13)
    assert texts(publisher.events, "a") == [f"a{number}" for number in range(10)]


async def test_many_keys_that_hang_leave_room_for_others(rig: Rig) -> None:
    """O4: however many refused keys are due again and hang, half of the places are for the others."""
    publisher = Hanging("a0", "a1", "a2", "a3", "a4")
    for key in sorted(publisher.keys):
        await rig.publish(key, key)
    await rig.alter(update(OUTBOX).values(attempt_count=9))
    await rig.publish("b", "b1", "b2")
    options = replace(QUICK, keys_at_once=4, batch_size=5, publish_timeout=ONE_HOUR, lease=ONE_HOUR * 2)
    async with Relay(rig.sessions, publisher, options):
        try:
            assert texts(await publisher.received(2)) == ["b1", "b2"]
        finally:
            publisher.released.set()
        await publisher.received(7)


async def test_an_event_that_hangs_is_tried_again(rig: Rig) -> None:
    """O2: no answer within the timeout is no answer: it is published again, and only then what follows it."""
    publisher = Hanging("a")
    await rig.publish("a", "a1", "a2")
    async with Relay(rig.sessions, publisher, replace(QUICK, publish_timeout=timedelta(milliseconds=30))):
        await eventually(lambda: rig.refusals() >= 1, what="it timed out")
        publisher.released.set()
        await publisher.received(2)
    assert texts(publisher.events) == ["a1", "a2"]


async def test_a_publisher_that_cancels_itself(rig: Rig) -> None:
    """O2: a client closed under its publisher cancels what waits: that is a refusal, and not the end of the relay."""
    publisher = Cancelling()
    await rig.publish("a", "a1", "a2")
    async with Relay(rig.sessions, publisher, QUICK):
        await publisher.received(2)
        await eventually(lambda: rig.written() == [], what="what is delivered is deleted")
    assert texts(publisher.deliveries) == ["a1", "a2"]


class Cancelling(MemoryPublisher):
    """Waits for something that somebody else cancels, the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[asyncio.Future[None]] = [asyncio.get_running_loop().create_future()]

    async def publish(self, event: Event) -> None:
        """See `Publisher`."""
        if self.answers:
            answer = self.answers.pop()
            asyncio.get_running_loop().call_soon(answer.cancel)
            await answer
        await super().publish(event)


async def test_a_broker_that_is_away_costs_no_event_an_attempt(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """O2, O4: while the broker can't be reached everything waits, uncounted; back again, it gets all of it in order."""
    publisher = MemoryPublisher()
    publisher.faults["*"] = PublisherUnavailableError("connection refused")
    for key in ("a", "b"):
        await rig.publish(key, f"{key}1", f"{key}2")
    async with Relay(rig.sessions, publisher, QUICK):
        await eventually(lambda: caplog.text.count("can't be reached") >= 2, what="it is tried again")
        assert rig.refusals() == 0
        publisher.faults.clear()
        await publisher.received(4)
    assert (texts(publisher.events, "a"), texts(publisher.events, "b")) == (["a1", "a2"], ["b1", "b2"])


async def test_relays_take_turns(rig: Rig) -> None:
    """O3: of several relays one delivers, so nothing is delivered twice and no order is broken."""
    publisher = MemoryPublisher()
    async with (
        Relay(rig.sessions, publisher, QUICK),
        Relay(rig.sessions, publisher, QUICK),
        Relay(rig.sessions, publisher, QUICK),
    ):
        for turn in range(10):
            for key in ("a", "b"):
                await rig.publish(key, f"{key}{turn}")
        await publisher.received(20)
        await eventually(lambda: rig.written() == [], what="what is delivered is deleted")
    assert len(publisher.deliveries) == 20
    for key in ("a", "b"):
        assert texts(publisher.events, key) == [f"{key}{turn}" for turn in range(10)]


async def test_a_relay_that_died_is_followed(rig: Rig) -> None:
    """O2: another relay takes over once the time of one that says nothing more is over, not before."""
    publisher = MemoryPublisher()
    await rig.publish("a", "a1")
    await rig.alter(insert(RELAY).values(name="relay", holder="dead", expire_s=4e9))
    async with Relay(rig.sessions, publisher, QUICK):
        await eventually(lambda: rig.seen("SELECT amends_outbox_relay") >= 2, what="it has looked")
        assert publisher.deliveries == []
        await rig.alter(update(RELAY).values(expire_s=1.0))
        await publisher.received(1)


async def test_a_relay_that_lost_its_turn_begins_nothing_more(rig: Rig) -> None:
    """O3: where another holds the lease a relay stops by itself, and cancels what is on its way."""
    publisher = Hanging("a")
    await rig.publish("a", "a1", "a2")
    options = replace(QUICK, lease=timedelta(milliseconds=300), publish_timeout=timedelta(milliseconds=250))
    async with Relay(rig.sessions, publisher, options):
        await publisher.hangs.wait()
        await rig.alter(update(RELAY).values(holder="another", expire_s=4e9))
        await publisher.cancelled.wait()
        publisher.released.set()
        await rig.publish("b", "b1")
    assert publisher.deliveries == []
    assert len(rig.written()) == 3


async def test_stopping_lets_what_is_on_its_way_end(rig: Rig) -> None:
    """O2: leaving the block waits for the event that is on its way, begins no other, and lets the next relay start."""
    publisher = Hanging("a")
    await rig.publish("a", "a1", "a2")
    relay = Relay(rig.sessions, publisher, QUICK)
    async with relay:
        await publisher.hangs.wait()
        relay.stop()
        publisher.released.set()
    assert texts(publisher.events) == ["a1"]
    assert rig.written() == [("a", "a2")]
    async with Relay(rig.sessions, publisher, QUICK):
        await publisher.received(2)


async def test_a_database_that_fails_for_a_while(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """O2: a relay survives errors of the database, in the middle of a turn too, and goes on when it is back."""
    publisher = Hanging("a")
    await rig.publish("a", "a1", "a2")
    async with Relay(rig.sessions, publisher, QUICK):
        await publisher.hangs.wait()
        await rig.alter(text("ALTER TABLE amends_outbox RENAME TO elsewhere"))
        publisher.released.set()
        await eventually(lambda: "can't be read" in caplog.text, what="its turn ended")
        await rig.alter(text("ALTER TABLE elsewhere RENAME TO amends_outbox"))
        await eventually(lambda: rig.written() == [], what="what is delivered is deleted")
    assert texts(publisher.events) == ["a1", "a2"]
    assert texts(publisher.deliveries)[:1] == ["a1"]
    assert texts(publisher.deliveries).count("a1") == 1, "what was delivered is remembered"


async def test_a_relay_in_a_thread(rig: Rig) -> None:
    """O2: beside a sync server a relay runs in a thread of its own; it needs plain sessions and says so."""
    publisher = MemoryPublisher()
    await rig.publish("a", "a1")
    with Relay(rig.sync_sessions, publisher, replace(QUICK, poll_interval=ONE_HOUR)):
        await publisher.received(1)
        await rig.publish("a", "a2")
        await publisher.received(2)
    assert rig.written() == []


async def test_keys_that_wait_are_counted(rig: Rig) -> None:
    """O4: the number of keys that are held has a limit; with so many nothing new is begun, and nothing is lost."""
    publisher = MemoryPublisher()
    for key in ("a", "b", "c"):
        publisher.faults[key] = PublishError("no")
        await rig.publish(key, f"{key}1")
    options = RelayOptions(
        poll_interval=QUICK.poll_interval,
        initial_delay=ONE_HOUR,
        maximum_delay=ONE_HOUR,
        lease=timedelta(milliseconds=60),
        publish_timeout=timedelta(milliseconds=50),
        held_keys_limit=3,
    )
    async with Relay(rig.sessions, publisher, options):
        await eventually(lambda: rig.refusals() == 3, what="all three are refused")
        await rig.publish("d", "d1")
        renewed = rig.seen("UPDATE amends_outbox_relay")
        await eventually(lambda: rig.seen("UPDATE amends_outbox_relay") >= renewed + 2, what="its turn goes on")
    assert publisher.deliveries == []
    assert len(rig.written()) == 4
