"""One saga's driver: what happens while a call is under way is decided at once, and decisions never overlap."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from amends import Saga
from amends_coordinator.core.ids import SagaId
from amends_coordinator.core.states import DeadLetterReason, SagaState
from amends_coordinator.ledger.memory import MemoryLedger
from amends_coordinator.ports.driving import StartRequest
from amends_coordinator.ports.ledger import ROOMY
from scenario.v1.scenario_pb2 import ScenarioInput, ScenarioOutput
from tests.scenarios.sagas import Do
from tests.unit.engine.rig import NOT_SENT, Rig, rig, stored, succeed
from tests.waiting import eventually, pause

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amends_coordinator.core.answer import Answer
    from amends_coordinator.core.ids import Instant
    from amends_coordinator.ports.ledger import Room, StoredSaga, Write
    from amends_coordinator.ports.participants import CallRequest

BOUND_S = 10.0


def late_saga() -> Saga[ScenarioInput, ScenarioOutput]:
    """A pivot that takes longer than the whole saga may."""
    saga = Saga("late", input=ScenarioInput, output=ScenarioOutput, timeout=timedelta(milliseconds=100))
    pivot = saga.pivot("a", Do(name="a"), timeout=timedelta(seconds=60))
    saga.output(ScenarioOutput)(effect_id=pivot.response.effect_id)
    return saga


async def start_late(stage: Rig) -> None:
    """Start it."""
    kept = await stage.ledger.put_definition(stored(late_saga()))
    assert (await stage.engine.start(StartRequest(saga_id=SagaId("s"), definition=kept, input=b""))).started


async def until_a_person_is_needed(stage: Rig) -> list[DeadLetterReason]:
    """Why people are needed, once they are."""
    async with asyncio.timeout(BOUND_S):
        while not (found := await stage.ledger.load(SagaId("s"))) or not found.saga.dead_letters:
            await pause()
    return [letter.reason for letter in found.saga.dead_letters]


async def test_a_timeout_is_told_while_a_call_is_under_way() -> None:
    """L1: behind the point of no return a late saga is reported at its deadline, not when its call ends."""
    released = asyncio.Event()

    async def answer(request: CallRequest) -> Answer:
        await released.wait()
        return await succeed(request)

    async with rig(MemoryLedger(), answer=answer) as stage:
        await start_late(stage)
        assert await until_a_person_is_needed(stage) == [DeadLetterReason.TIMED_OUT]
        released.set()
        assert (await stage.end("s")).saga.state is SagaState.COMMITTED


class SlowLedger(MemoryLedger):
    """Holds back every decision until it is let go, and counts how many are on their way at once."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.under_way = 0
        self.most = 0

    async def append(self, write: Write) -> int:
        """See the port."""
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.gate.wait()
            return await super().append(write)
        finally:
            self.under_way -= 1


async def test_an_answer_that_comes_while_another_decision_is_written_is_decided_after_it() -> None:
    """B1: at most one decision of a saga is on its way, and the next one is made on what became of it."""
    released, answered = asyncio.Event(), asyncio.Event()

    async def answer(request: CallRequest) -> Answer:
        await released.wait()
        answered.set()
        return await succeed(request)

    ledger = SlowLedger()
    async with rig(ledger, answer=answer) as stage:
        await start_late(stage)
        await eventually(lambda: ledger.under_way == 1, what="the timeout is being written")
        released.set()
        await answered.wait()
        ledger.gate.set()
        end = await stage.end("s")
        assert end.saga.state is SagaState.COMMITTED
        assert [letter.reason for letter in end.saga.dead_letters] == [DeadLetterReason.TIMED_OUT]
        assert ledger.most == 1


async def test_a_stop_reaches_a_saga_that_was_started_just_before_it() -> None:
    """L1: nobody waits a whole grace for a saga whose driver had not yet had its turn."""

    async def answer(_: CallRequest) -> Answer:
        return NOT_SENT

    async with rig(MemoryLedger(), answer=answer) as stage:
        assert (await stage.start("s")).started
        async with asyncio.timeout(BOUND_S):
            await stage.engine.stop(BOUND_S * 10)


class TellingLedger(MemoryLedger):
    """Says when sagas were claimed, just before whoever claimed them goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.claimed: Callable[[SagaId], object] = id

    async def claim(
        self, *, now: Instant, limit: int, held: frozenset[SagaId], room: Room = ROOMY
    ) -> Sequence[StoredSaga]:
        """See the port."""
        found = await super().claim(now=now, limit=limit, held=held, room=room)
        for each in found:
            self.claimed(each.saga.id)
        return found


async def test_a_nudge_before_the_drivers_first_turn_comes_after_its_first_event() -> None:
    """S5: calls that were just made are never taken for those that somebody else left behind."""
    released = asyncio.Event()

    async def answer(request: CallRequest) -> Answer:
        if request.saga_id == "first":
            await released.wait()
        return await succeed(request)

    ledger = TellingLedger()
    async with rig(ledger, answer=answer, max_running_sagas=1) as stage:
        loop = asyncio.get_running_loop()
        ledger.claimed = lambda saga_id: loop.call_soon(stage.engine.nudge, saga_id)
        await stage.start("first")
        await stage.start("s")  # waits in the ledger for room
        released.set()
        assert (await stage.end("s")).saga.state is SagaState.COMMITTED
        assert stage.participants.sides("s") == ["a/action#1", "b/action#1"]


class HesitatingLedger(MemoryLedger):
    """Claims at once and answers when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.hesitates = False
        self.has_claimed = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def claim(
        self, *, now: Instant, limit: int, held: frozenset[SagaId], room: Room = ROOMY
    ) -> Sequence[StoredSaga]:
        """See the port."""
        found = await super().claim(now=now, limit=limit, held=held, room=room)
        if self.hesitates and found:
            self.has_claimed.set()
            await self.may_answer.wait()
        return found


async def test_what_is_claimed_while_the_node_stops_is_left_to_the_next_one() -> None:
    """L1: nobody waits for a driver that begins after the node has let go of all others; its calls would be cut off."""
    released = asyncio.Event()

    async def answer(request: CallRequest) -> Answer:
        if request.saga_id == "first":
            await released.wait()
        return await succeed(request)

    ledger = HesitatingLedger()
    async with rig(ledger, answer=answer, max_running_sagas=1) as stage:
        await stage.start("first")
        await stage.start("s")  # waits in the ledger for room
        ledger.hesitates = True
        released.set()
        await ledger.has_claimed.wait()
        await stage.engine.stop(BOUND_S)
        ledger.may_answer.set()
    assert stage.participants.sides("s") == []
