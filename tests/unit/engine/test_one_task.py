"""A saga is one task from its start to its end, which nobody who asked for it can cancel, and whose call can be cut."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from amends import Saga
from amends_coordinator.core.ids import NodeId, SagaId
from amends_coordinator.core.states import SagaState
from amends_coordinator.ledger.memory import MemoryLedger
from amends_coordinator.ports.driving import Person, StartRequest
from scenario.v1.scenario_pb2 import ScenarioInput, ScenarioOutput
from tests.scenarios.sagas import Do, Undo
from tests.unit.engine.rig import rig, stored, succeed
from tests.waiting import eventually

if TYPE_CHECKING:
    from amends_coordinator.core.answer import Answer
    from amends_coordinator.core.definition import StoredDefinition
    from amends_coordinator.ports.ledger import NewSaga, Started
    from amends_coordinator.ports.participants import CallRequest

SAGA = SagaId("s")
ADA = Person(actor="unauthenticated:test", claimed_actor="ada", reason="a test")


def tasks_of_the_saga() -> set[asyncio.Task[object]]:
    """The tasks that drive it."""
    return {task for task in asyncio.all_tasks() if task.get_name().startswith("saga s")}


class Hanging:
    """A participant that never answers step b, and keeps the tasks that call it."""

    def __init__(self) -> None:
        self.called, self.cut = asyncio.Event(), asyncio.Event()
        self.callers: list[asyncio.Task[object] | None] = []

    async def answer(self, request: CallRequest) -> Answer:
        """Answer as told above."""
        self.callers.append(asyncio.current_task())
        if (request.step, request.direction) == ("b", "ACTION"):
            self.called.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cut.set()
        return await succeed(request)


async def test_a_saga_that_goes_on_well_is_one_task() -> None:
    """L2: what thousands of sagas in memory cost is one task each."""
    seen: list[set[asyncio.Task[object]]] = []

    async def answer(request: CallRequest) -> Answer:
        seen.append(tasks_of_the_saga())
        return await succeed(request)

    async with rig(MemoryLedger(), answer=answer) as stage:
        await stage.start("s", "a", "b")
        await stage.end("s")
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert len(seen[0]) == 1


async def test_the_task_goes_on_when_its_call_is_cut() -> None:
    """S5, S10: an abort cuts the call short after its grace, and the undo of what came before follows."""
    hanging = Hanging()
    async with rig(MemoryLedger(), answer=hanging.answer, abort_grace_s=0.0) as stage:
        await stage.start("s", "a", "b")
        await hanging.called.wait()
        await stage.engine.verbs.abort(SAGA, ADA)
        end = await stage.end("s")
        assert end.saga.state is SagaState.COMPENSATION_FAILED, "b's answer never came, and its undo needs it"
        assert stage.participants.sides("s") == ["a/action#1", "b/action#1", "a/compensation#1"]
        assert hanging.cut.is_set()
        await eventually(lambda: not tasks_of_the_saga(), what="the driver has let go")
        assert stage.telemetry.failures == []


async def test_a_saga_that_is_found_lost_during_its_call_is_let_go() -> None:
    """S7: the call is cancelled at once, not when its answer comes."""
    hanging, ledger = Hanging(), MemoryLedger()
    async with rig(ledger, answer=hanging.answer) as stage:
        await stage.start("s", "a", "b")
        await hanging.called.wait()
        record = ledger.store.records[SAGA]
        record.stored = replace(record.stored, owner=NodeId("another"), version=record.stored.version + 1)
        stage.engine.nudge(SAGA)
        await asyncio.wait_for(hanging.cut.wait(), 10)
        await eventually(lambda: not tasks_of_the_saga(), what="the driver has let go")
        assert stage.running_sagas == 0
        assert stage.telemetry.failures == []


@pytest.mark.parametrize("turns", range(4))
async def test_a_stop_while_a_call_is_cut_ends_the_task(turns: int) -> None:
    """S7: the task was cancelled for two reasons at once, and the stop counts."""
    hanging = Hanging()
    async with rig(MemoryLedger(), answer=hanging.answer, abort_grace_s=0.0) as stage:
        await stage.start("s", "a", "b")
        await hanging.called.wait()
        aborting = asyncio.create_task(stage.engine.verbs.abort(SAGA, ADA))
        for _ in range(turns):
            await asyncio.sleep(0)
        await stage.engine.stop(0.0)
        assert tasks_of_the_saga() == set()
        await aborting


class SlowToTell(MemoryLedger):
    """Holds back the answer to a start that it has written."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.gate = asyncio.Event(), asyncio.Event()

    async def start(self, new: NewSaga) -> Started:
        """See the port."""
        started = await super().start(new)
        self.written.set()
        await self.gate.wait()
        return started


async def test_a_start_is_carried_through_without_the_one_who_asked() -> None:
    """S11, L1: a client that goes away changes nothing; the saga is driven by the node that wrote it."""
    ledger = SlowToTell()
    async with rig(ledger) as stage:
        asking = asyncio.create_task(stage.start("s", "a"))
        await ledger.written.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        ledger.gate.set()
        assert (await stage.end("s")).saga.state is SagaState.COMMITTED
        assert stage.telemetry.started == ["s"]


def side_by_side() -> StoredDefinition:
    """Two steps that begin together."""
    saga = Saga("beside", input=ScenarioInput, output=ScenarioOutput)
    for name in ("a", "b"):
        step = saga.step(name, Do(name=name), after=())
        step.compensated_by(Undo(effect_id=step.response.effect_id, name=name))
    saga.output(ScenarioOutput)()
    return stored(saga)


@pytest.mark.parametrize("turns", range(6))
async def test_a_stop_at_the_moment_of_the_last_answer_fails_nothing(turns: int) -> None:
    """S7: the saga comes to its end in one task while the one that waits for it is being cancelled."""
    called, answered = asyncio.Event(), asyncio.Event()

    async def answer(request: CallRequest) -> Answer:
        if request.step == "b":
            called.set()
            await answered.wait()
        return await succeed(request)

    async with rig(MemoryLedger(), answer=answer) as stage:
        kept = await stage.ledger.put_definition(side_by_side())
        await stage.engine.start(StartRequest(saga_id=SAGA, definition=kept, input=b""))
        await called.wait()
        await eventually(lambda: len(tasks_of_the_saga()) == 2, what="a is done, and its task waits for b's")
        answered.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        driving = [task for task in tasks_of_the_saga() if task.get_name() == "saga s"]
        for task in driving:
            task.cancel()
        await asyncio.gather(*driving, return_exceptions=True)
        assert tasks_of_the_saga() == set()
        assert stage.telemetry.failures == []
