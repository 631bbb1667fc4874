"""The guarantees of the publisher port, asserted of every adapter; and what only NATS does."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from amends.outbox import Event, PublishError, PublisherUnavailableError, Relay
from amends.outbox.nats import NatsPublisher
from tests.conformance.outbox.brokers import Broker, MemoryBroker, NatsBroker
from tests.conformance.outbox.rigs import QUICK, Rig, heard
from tests.nats import NOT_TESTED, NatsServer, find_server
from tests.waiting import eventually


def event(number: int, *, topic: str = "orders.placed") -> Event:
    """An event as a relay hands it over."""
    return Event(
        event_id=str(uuid.uuid4()),
        topic=topic,
        key="order-1",
        payload=b"%d" % number,
        content_type="text/plain",
        type_name="acme.v1.OrderPlaced",
        headers={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x-tenant": "blue"},
        saga_id="order-1",
        step="place",
        create_time=datetime.now(UTC),
    )


@pytest_asyncio.fixture
async def nats_broker(tmp_path: Path) -> AsyncIterator[NatsBroker]:
    """A NATS server of this test."""
    binary = find_server()
    if binary is None:
        pytest.skip(NOT_TESTED)
    broker = NatsBroker(NatsServer(binary, tmp_path))
    await broker.prepare()
    yield broker
    await broker.close()


@pytest.fixture(params=["memory", "nats"])
def broker(request: pytest.FixtureRequest) -> Broker:
    """Every adapter. A new one is added here and must pass everything."""
    if request.param == "memory":
        return MemoryBroker()
    found: NatsBroker = request.getfixturevalue("nats_broker")
    return found


async def test_what_is_published_is_kept_in_order(broker: Broker) -> None:
    """O2, O3: once `publish` has returned the broker has the event, behind those that were published before it."""
    for number in range(5):
        await broker.publisher.publish(event(number))
    assert await broker.arrived() == [("orders.placed", b"%d" % number) for number in range(5)]


async def test_an_event_that_comes_again_is_thrown_away(broker: Broker) -> None:
    """O2: publishing an event again, also after another, succeeds and leaves one."""
    first, second = event(1), event(2)
    for each in (first, second, first, second):
        await broker.publisher.publish(each)
    assert await broker.arrived() == [("orders.placed", b"1"), ("orders.placed", b"2")]


async def test_a_broker_that_goes_away_and_comes_back(broker: Broker) -> None:
    """O2: out of reach it says so, soon; back again the same publisher goes on, and nothing is lost."""
    await broker.publisher.publish(event(1))
    await broker.go_away()
    with pytest.raises(PublisherUnavailableError):
        async with asyncio.timeout(10):
            await broker.publisher.publish(event(2))
    await broker.come_back()
    await broker.publisher.publish(event(3))
    assert await broker.arrived() == [("orders.placed", b"1"), ("orders.placed", b"3")]


async def test_many_keys_at_once(broker: Broker) -> None:
    """O4: a publisher is called for many keys at once."""
    await asyncio.gather(*(broker.publisher.publish(event(number)) for number in range(50)))
    assert sorted(payload for _, payload in await broker.arrived()) == sorted(b"%d" % number for number in range(50))


async def test_nats_gets_everything_that_an_event_says(nats_broker: NatsBroker) -> None:
    """O2: a consumer finds the id, the types, the saga and the trace in the message's headers."""
    sent = event(1)
    await nats_broker.publisher.publish(sent)
    (message,) = await nats_broker.messages()
    assert message.headers == {
        "Nats-Msg-Id": sent.event_id,
        "content-type": "text/plain",
        "amends-key": "order-1",
        "amends-type": "acme.v1.OrderPlaced",
        "amends-saga-id": "order-1",
        "amends-step": "place",
        **sent.headers,
    }


async def test_nats_refuses_what_no_stream_takes(nats_broker: NatsBroker) -> None:
    """O4: a subject without a stream, a full stream and another one than the expected are refusals of one event."""
    with pytest.raises(PublishError, match="no stream takes the subject 'elsewhere'") as refusal:
        await nats_broker.publisher.publish(event(1, topic="elsewhere"))
    assert not isinstance(refusal.value, PublisherUnavailableError)
    with pytest.raises(PublishError, match="maximum bytes exceeded") as refusal:
        await nats_broker.publisher.publish(event(1, topic="full.placed"))
    assert not isinstance(refusal.value, PublisherUnavailableError)
    async with NatsPublisher([nats_broker.server.url], stream="other") as strict:
        with pytest.raises(PublishError, match="expected stream does not match"):
            await strict.publish(event(1))
    with pytest.raises(PublishError, match="more than the server takes"):
        await nats_broker.publisher.publish(replace(event(1), payload=bytes(2_000_000)))
    with pytest.raises(PublishError, match="with its headers, more than the server takes") as refusal:
        await nats_broker.publisher.publish(replace(event(1), payload=bytes(1_048_576 - 100)))
    assert not isinstance(refusal.value, PublisherUnavailableError)
    await nats_broker.publisher.publish(event(2))
    assert await nats_broker.arrived() == [("orders.placed", b"2")]


async def test_nats_takes_an_event_that_just_fits(nats_broker: NatsBroker) -> None:
    """O4: what is counted before an event is sent is what the server counts, headers too: the largest arrives."""
    limit = 1_048_576
    with pytest.raises(PublishError, match="more than the server takes") as told:
        await nats_broker.publisher.publish(replace(event(1), payload=bytes(limit)))
    counted = re.search(r"has ([\d,]+) bytes", str(told.value))
    assert counted is not None
    just_fits = limit - (int(counted[1].replace(",", "")) - limit)
    await nats_broker.publisher.publish(replace(event(2), payload=bytes(just_fits)))
    assert len(await nats_broker.arrived()) == 1


async def test_nats_that_never_was_there() -> None:
    """O4: a server that can't be reached from the start is out of reach, not the fault of an event."""
    async with NatsPublisher("nats://127.0.0.1:1") as publisher:
        with pytest.raises(PublisherUnavailableError, match="no NATS server can be reached"):
            await publisher.publish(event(1))


async def test_from_the_outbox_to_nats_through_its_crash(nats_broker: NatsBroker, tmp_path: Path) -> None:
    """O2, O3: the server is killed while events are on their way; each key arrives whole, in order, each event once."""
    rig = Rig(f"sqlite:///{tmp_path / 'participant.db'}", threaded=False)
    for turn in range(20):
        for key in ("a", "b", "c"):
            await rig.publish(key, f"{key}{turn}", topic=f"orders.{key}")
    async with Relay(rig.sessions, nats_broker.publisher, replace(QUICK, batch_size=10)):
        await eventually(lambda: 0 < len(rig.written()) < 60, what="some are delivered")
        await nats_broker.go_away()
        for key in ("a", "b", "c"):
            await rig.publish(key, f"{key}20", topic=f"orders.{key}")
        await nats_broker.come_back()
        await eventually(lambda: rig.written() == [], what="all are delivered", bound_s=20)
    arrived = [(topic, heard(payload)) for topic, payload in await nats_broker.arrived()]
    for key in ("a", "b", "c"):
        assert [said for topic, said in arrived if topic == f"orders.{key}"] == [f"{key}{turn}" for turn in range(21)]
    await rig.close()
