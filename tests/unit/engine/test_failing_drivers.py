"""What the coordinator can't get on with is told to a person, and tried again all the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from amends import Saga
from amends_coordinator.core.ids import SagaId
from amends_coordinator.core.states import DeadLetterReason, SagaState
from amends_coordinator.engine import drivers
from amends_coordinator.ledger.memory import MemoryLedger
from amends_coordinator.ports.driving import Person, StartRequest
from amends_coordinator.ports.ledger import Write
from scenario.v1.scenario_pb2 import ScenarioInput, ScenarioOutput
from tests.scenarios.sagas import QUICK, Do, ScenarioSaga, Undo
from tests.unit.engine.ledgers import LyingLedger, Plan
from tests.unit.engine.rig import rig, stored, succeed
from tests.waiting import eventually, pause

if TYPE_CHECKING:
    from amends_coordinator.core.answer import Answer
    from amends_coordinator.core.definition import StoredDefinition
    from amends_coordinator.ports.participants import CallRequest


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
        found = await stage.end("s")
        assert found.saga.state is SagaState.COMMITTED
        (letter,) = found.saga.dead_letters
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
        found = await stage.ledger.load(SagaId("s"))
        assert found is not None
        (letter,) = found.saga.dead_letters
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
        found = await stage.ledger.load(SagaId("s"))
        assert found is not None
        (letter,) = found.saga.dead_letters
        assert (letter.reason, found.saga.state) == (DeadLetterReason.DRIVER_FAILED, SagaState.RUNNING)
        assert "WriteRefusedError" in letter.last_error


def beside() -> StoredDefinition:
    """Two steps side by side."""
    saga: ScenarioSaga = Saga("beside", input=ScenarioInput, output=ScenarioOutput)
    for name in ("slow", "quick"):
        saga.step(name, Do(name=name), after=(), retry=QUICK).compensated_by(Undo(name=name), by_key=True)
    saga.output(ScenarioOutput)()
    return stored(saga)


async def test_its_calls_have_ended_before_it_is_picked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """S2, L2: a call under way when its driver fails is cancelled, and nothing is repeated before it has stopped."""
    monkeypatch.setattr(drivers, "FIRST_PAUSE_S", 0.001)
    happened: list[str] = []
    planted = asyncio.Event()

    async def answer(request: CallRequest) -> Answer:
        if request.step != "slow" or request.attempt > 1:
            happened.append(f"{request.step}#{request.attempt}")
            return await succeed(request)
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(20):
                await pause()  # it takes its time to stop, longer than the driver's pause
            happened.append("slow#1 stopped")
        raise AssertionError("it is only ever cancelled")

    def plant(which: str) -> None:
        if which == "intent_moved" and happened and not planted.is_set():
            planted.set()
            raise PlantedError

    async with rig(MemoryLedger(), answer=answer, plant=plant) as stage:
        kept = await stage.ledger.put_definition(beside())
        await stage.engine.start(StartRequest(saga_id=SagaId("s"), definition=kept, input=b""))
        assert (await stage.end("s")).saga.state is SagaState.COMMITTED
    assert planted.is_set()
    assert happened == ["quick#1", "slow#1 stopped", "slow#2"]
