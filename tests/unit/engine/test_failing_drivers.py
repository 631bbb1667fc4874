"""What the coordinator can't get on with is told to a person, and tried again all the same."""

from __future__ import annotations

import asyncio

import pytest

from amends_coordinator.core.ids import SagaId
from amends_coordinator.core.states import DeadLetterReason, SagaState
from amends_coordinator.engine import drivers
from amends_coordinator.ledger.memory import MemoryLedger
from amends_coordinator.ports.driving import Person
from amends_coordinator.ports.ledger import Write
from tests.unit.engine.ledgers import LyingLedger, Plan
from tests.unit.engine.rig import rig
from tests.waiting import eventually


class PlantedError(Exception):
    """What the tests have a part raise."""


async def test_a_driver_that_fails_again_and_again_gets_one_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    """L1, L2: a person hears of it once; the saga is tried with growing pauses, and ends when it can."""
    monkeypatch.setattr(drivers, "FIRST_PAUSE_S", 0.001)
    told: list[str] = []
    opened = asyncio.Event()

    def plant(which: str) -> None:
        told.append(which)
        if which == "dead_letter_opened":
            opened.set()
        if which == "intent_moved" and told.count("intent_moved") <= 2 * drivers.FAILURES_BEFORE_DEAD_LETTER:
            raise PlantedError

    async with rig(MemoryLedger(), plant=plant) as stage:
        await stage.start("s", "a", "b")
        await asyncio.wait_for(opened.wait(), 30)
        stored = await stage.end("s")
        assert stored.saga.state is SagaState.COMMITTED
        (letter,) = stored.saga.dead_letters
        assert letter.reason is DeadLetterReason.DRIVER_FAILED
        assert letter.step is None
        assert "PlantedError" in letter.last_error
        assert letter.closed_time is None, "it stays open until a person has seen it"
        assert told.count("dead_letter_opened") == 1


async def test_a_retry_takes_it_up_at_once_and_asks_for_nobody_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """L1: a person who has mended it need not wait, and sees no second dead letter for old failures."""
    monkeypatch.setattr(drivers, "FIRST_PAUSE_S", 0.001)
    mended = asyncio.Event()

    def plant(which: str) -> None:
        if which == "dead_letter_opened":
            monkeypatch.setattr(drivers, "FIRST_PAUSE_S", 60.0)
            monkeypatch.setattr(drivers, "LONGEST_PAUSE_S", 60.0)
        if which == "intent_moved" and not mended.is_set():
            raise PlantedError

    async with rig(MemoryLedger(), plant=plant) as stage:
        await stage.start("s", "a", "b")
        failures = stage.telemetry.failures
        await eventually(lambda: len(failures) > drivers.FAILURES_BEFORE_DEAD_LETTER, what="it fails, and was told")
        mended.set()
        stored = await stage.ledger.load(SagaId("s"))
        assert stored is not None
        (letter,) = stored.saga.dead_letters
        await stage.engine.verbs.retry(letter.id, Person(actor="a", claimed_actor="", reason="mended"), forced=False)
        ended = await stage.end("s")
        assert ended.saga.state is SagaState.COMMITTED
        assert [each.closed_time is None for each in ended.saga.dead_letters] == [False]


async def test_a_saga_whose_data_the_ledger_refuses_gets_a_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    """L2: the guilty saga alone stands still, and a person hears of it."""
    monkeypatch.setattr(drivers, "FIRST_PAUSE_S", 0.001)
    told = asyncio.Event()

    def guilty(write: Write) -> bool:
        return write.saga.id == "s" and bool(write.intents)

    def plant(which: str) -> None:
        if which == "dead_letter_opened":
            told.set()

    async with rig(LyingLedger(Plan(refuses=guilty)), plant=plant) as stage:
        await stage.start("s", "a", "b")
        await stage.start("t", "a", "b")
        assert (await stage.end("t")).saga.state is SagaState.COMMITTED
        await asyncio.wait_for(told.wait(), 30)
        stored = await stage.ledger.load(SagaId("s"))
        assert stored is not None
        (letter,) = stored.saga.dead_letters
        assert (letter.reason, stored.saga.state) == (DeadLetterReason.DRIVER_FAILED, SagaState.RUNNING)
        assert "WriteRefusedError" in letter.last_error
