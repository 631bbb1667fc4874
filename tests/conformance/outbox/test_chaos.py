"""Everything at once: writers, relays that lose their turn, and a broker that refuses, hangs, lies and goes away."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import update

from amends.outbox import Event, MemoryPublisher, PublishError, PublisherUnavailableError, Relay
from amends.outbox.tables import RELAY
from tests.conformance.outbox.rigs import QUICK, Rig, texts
from tests.waiting import eventually, pause

KEYS = ("a", "b", "c", "d", "e")
EVENTS_PER_KEY = 12
OPTIONS = replace(
    QUICK,
    publish_timeout=timedelta(milliseconds=40),
    lease=timedelta(milliseconds=200),
    batch_size=8,
    keys_at_once=3,
)


class Fickle(MemoryPublisher):
    """A broker that takes what it is sent only now and then, and doesn't always say so."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance

    async def publish(self, event: Event) -> None:
        """See `Publisher`."""
        fate = self.chance.random()
        if fate < 0.10:
            raise PublishError("refused")
        if fate < 0.15:
            raise PublisherUnavailableError("away")
        if fate < 0.20:
            await asyncio.Event().wait()
        await pause()
        await super().publish(event)
        if fate < 0.30:
            raise ConnectionResetError("taken, but the answer was lost")


@pytest.mark.parametrize("rig", ["sqlite-async", "postgresql-sync"], indirect=True)
async def test_whatever_happens(rig: Rig) -> None:
    """O2, O3: everything arrives, and what arrives for the first time does so in the order of its key."""
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    publisher = Fickle(chance)

    async def write(key: str) -> None:
        for number in range(EVENTS_PER_KEY):
            await asyncio.to_thread(rig.publish_here, key, f"{key}{number}")

    async def disturb() -> None:
        while True:
            for _ in range(chance.randrange(30)):
                await pause()
            await rig.alter(update(RELAY).values(expire_s=1.0, holder="nobody"))

    async with Relay(rig.sessions, publisher, OPTIONS), Relay(rig.sessions, publisher, OPTIONS):
        disturbing = asyncio.create_task(disturb())
        await asyncio.gather(*map(write, KEYS))
        total = len(KEYS) * EVENTS_PER_KEY
        await eventually(lambda: len(publisher.events) == total, what=f"all arrive (seed {seed})", bound_s=30)
        disturbing.cancel()
        await asyncio.wait([disturbing])
        await eventually(lambda: rig.written() == [], what=f"all are deleted (seed {seed})")
    for key in KEYS:
        assert texts(publisher.events, key) == [f"{key}{number}" for number in range(EVENTS_PER_KEY)], f"seed {seed}"
