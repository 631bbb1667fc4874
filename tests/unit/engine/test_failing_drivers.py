"""What the coordinator can't get on with is told to a person, and tried again all the same."""

from __future__ import annotations

import asyncio

import pytest

from amends_coordinator.core.states import DeadLetterReason, SagaState
from amends_coordinator.engine import drivers
from amends_coordinator.ledger.memory import MemoryLedger
from tests.unit.engine.rig import rig


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
