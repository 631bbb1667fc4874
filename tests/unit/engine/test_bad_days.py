"""The engine on bad days: what surrounds it raises, lies, is away or collects garbage; every saga ends all the same."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from amends import Retry
from amends_coordinator.core.ids import NodeId, SagaId
from amends_coordinator.core.states import Outcome, SagaState
from amends_coordinator.ledger.memory import MemoryLedger
from amends_coordinator.ports.driving import StartRequest
from amends_coordinator.ports.ledger import LedgerUnavailableError, NodeFencedError
from amends_coordinator.system import SystemClock
from tests.scenarios.sagas import steps
from tests.unit.engine.ledgers import Every, LyingLedger, Once, Plan, SlowLedger
from tests.unit.engine.rig import LOST, NODE, NOT_SENT, REFUSED, Rig, rig, stored, succeed
from tests.waiting import eventually, pause

if TYPE_CHECKING:
    from amends_coordinator.core.answer import Answer
    from amends_coordinator.core.definition import StoredDefinition
    from amends_coordinator.ports.ledger import StoredSaga, Write
    from amends_coordinator.ports.participants import CallRequest

COMMITTED, COMPENSATED = SagaState.COMMITTED, SagaState.COMPENSATED
MANY = 30


class PlantedError(Exception):
    """What a test plants."""


async def run_many(stage: Rig, count: int, *names: str) -> list[StoredSaga]:
    """Start so many sagas at once, and all their ends."""
    await asyncio.gather(*(stage.start(f"s-{n}", *names) for n in range(count)))
    return list(await asyncio.gather(*(stage.end(f"s-{n}") for n in range(count))))


async def refuse_b(request: CallRequest) -> Answer:
    """Step b is refused, all else goes well."""
    return REFUSED if (request.step, request.direction) == ("b", "ACTION") else await succeed(request)


@pytest.mark.parametrize("name", ["saga_moved", "intent_moved"])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
async def test_a_telemetry_that_raises_once(name: str, number: int) -> None:
    """F20, S12: a driver made to raise is told and taken up again; nothing is called without its intent, nothing is
    lost, and a healthy saga is not rolled back.
    """
    turns = iter(range(1, 1_000))

    def plant(which: str) -> None:
        if which == name and next(turns) == number:
            raise PlantedError

    async with rig(MemoryLedger(), plant=plant) as stage:
        assert (await stage.start("s")).started
        assert (await stage.end("s")).saga.state is COMMITTED
        reached = number <= {"saga_moved": 1, "intent_moved": 3}[name]
        assert len(stage.telemetry.failures) == reached
        assert stage.running_sagas == 0


async def test_a_telemetry_that_raises_when_nothing_could_be_sent() -> None:
    """L1: no call stays under way for ever because telling of it failed."""

    def plant(which: str) -> None:
        if which == "call_not_sent":
            raise PlantedError

    async def answer(request: CallRequest) -> Answer:
        return NOT_SENT if request.attempt < 2 else await succeed(request)

    async with rig(MemoryLedger(), answer=answer, plant=plant) as stage:
        await stage.start("s")
        assert (await stage.end("s")).saga.state is COMMITTED
        assert len(stage.telemetry.failures) == 2


async def test_a_telemetry_that_raises_at_every_start() -> None:
    """S11, L1: the saga is durable and driven, whatever the one who asked for it was told."""

    def plant(which: str) -> None:
        if which == "saga_started":
            raise PlantedError

    async with rig(MemoryLedger(), plant=plant) as stage:
        with pytest.raises(PlantedError):
            await stage.start("s")
        assert (await stage.end("s")).saga.state is COMMITTED


async def test_a_participants_port_that_raises() -> None:
    """S12: nothing is known of such a call, so it is repeated with its key."""
    raised: set[str] = set()

    async def answer(request: CallRequest) -> Answer:
        if request.key not in raised:
            raised.add(request.key)
            raise PlantedError
        return await succeed(request)

    async with rig(MemoryLedger(), answer=answer) as stage:
        assert (await stage.start("s")).started
        stored = await stage.end("s")
        assert stored.saga.state is COMMITTED
        assert stage.participants.sides("s") == ["a/action#1", "a/action#2", "b/action#1", "b/action#2"]
        assert [attempt.outcome for attempt in stored.saga.intents[0].attempts] == [Outcome.UNKNOWN, Outcome.SUCCEEDED]
        assert len(stage.telemetry.failures) == 2


@pytest.mark.parametrize("number", [2, 3])
async def test_v16_writes_whose_answers_are_lost(number: int) -> None:
    """V16, S11: did it, then reported a fault: each decision is applied exactly once, each call made once, and no
    healthy saga is rolled back.
    """
    plan = Plan(after=Every("append", number))
    async with rig(LyingLedger(plan)) as stage:
        ends = await run_many(stage, 3)
        assert {stored.saga.state for stored in ends} == {COMMITTED}
        for stored in ends:
            assert stage.participants.sides(stored.saga.id) == ["a/action#1", "b/action#1"]
            versions = [write.seen_version for write in plan.appended if write.saga.id == stored.saga.id]
            assert sorted(set(versions)) == [1, 2], "two decisions, however often they were sent"
            assert stored.version == 3
        assert not stage.telemetry.failures


async def test_v16_compensations_too() -> None:
    """V16, S4: the same on the way back."""
    async with rig(LyingLedger(Plan(after=Every("append", 2))), answer=refuse_b) as stage:
        assert (await stage.start("s")).started
        assert (await stage.end("s")).saga.state is COMPENSATED
        assert stage.participants.sides("s") == ["a/action#1", "b/action#1", "a/compensation#1"]


async def test_claims_and_heartbeats_whose_answers_are_lost() -> None:
    """L1: the sweeper survives, and what it claimed without knowing is claimed again."""
    ledger = LyingLedger(Plan(after=Every("claim", 2), before=Every("heartbeat", 2)))
    async with rig(ledger, max_running_sagas=2) as stage:
        ends = await run_many(stage, MANY)
        assert {stored.saga.state for stored in ends} == {COMMITTED}
        assert stage.telemetry.outages > 0
        assert {len(stage.participants.sides(f"s-{n}")) for n in range(MANY)} == {2}


async def test_an_outage_in_the_middle() -> None:
    """S12: nothing can be written for a while: no call is made meanwhile, an answer in hand is kept, all goes on."""
    away, reached = asyncio.Event(), asyncio.Event()

    async def answer(request: CallRequest) -> Answer:
        if request.step == "a":
            away.set()
            reached.set()
        return await succeed(request)

    plan = Plan(before=lambda name: away.is_set() and name in ("append", "claim", "heartbeat", "start"))
    async with rig(LyingLedger(plan), answer=answer) as stage:
        assert (await stage.start("s")).started
        await reached.wait()
        with pytest.raises(LedgerUnavailableError):
            await stage.start("other")
        assert stage.participants.sides("s") == ["a/action#1"]
        away.clear()
        stored = await stage.end("s")
        assert stored.saga.state is COMMITTED
        assert stage.participants.sides("s") == ["a/action#1", "b/action#1"]


async def test_an_outage_is_not_charged_to_a_calls_budget() -> None:
    """S12: the ledger was away for longer than the budget while a call was announced; the call is repeated all the
    same, and the saga isn't rolled back.
    """
    retry = Retry(
        initial_delay=timedelta(milliseconds=10),
        maximum_delay=timedelta(milliseconds=10),
        total_timeout=timedelta(milliseconds=300),
    )

    async def answer(request: CallRequest) -> Answer:
        return LOST if (request.step, request.attempt) == ("b", 1) else await succeed(request)

    async with rig(LyingLedger(Plan(after=Once("append"))), answer=answer) as stage:
        request = StartRequest(saga_id=SagaId("s"), definition=stored(steps("a", "b", retry=retry)), input=b"")
        await stage.ledger.put_definition(request.definition)
        await stage.engine.start(request)
        found = await stage.end("s")
        assert found.saga.state is COMMITTED
        assert stage.participants.sides("s") == ["a/action#1", "b/action#1", "b/action#2"]
        first, second = found.saga.intents[1].attempts
        assert first.start_time < second.start_time


async def test_a_start_whose_answer_is_lost() -> None:
    """S9, S11: repeated with its id it finds its saga, which ends once; here it is the sweeper that finds it first."""
    plan = Plan(after=Every("start", 1))
    async with rig(LyingLedger(plan), max_running_sagas=1) as stage:
        with pytest.raises(LedgerUnavailableError):
            await stage.start("s")
        plan.after = lambda _: False
        again = await stage.start("s")
        assert not again.started
        assert again.stored.saga.id == "s"


async def test_a_ledger_that_is_slower_than_a_calls_timeout() -> None:
    """L1: an attempt's time begins when it is durable: a call is never over before it could be sent."""
    clock = SystemClock()
    left_us: list[int] = []

    async def answer(request: CallRequest) -> Answer:
        left_us.append(request.deadline_time - clock.now())
        return await refuse_b(request)

    async with rig(SlowLedger(), answer=answer) as stage:
        request = StartRequest(saga_id=SagaId("s"), definition=hasty(), input=b"")
        await stage.ledger.put_definition(request.definition)
        await stage.engine.start(request)
        assert (await stage.end("s")).saga.state is COMPENSATED
    assert len(left_us) == 3
    assert all(left > 5_000 for left in left_us), left_us


def hasty() -> StoredDefinition:
    """Two steps whose calls have 10 ms."""
    return stored(steps("a", "b", attempt_timeout=timedelta(milliseconds=10)))


async def test_data_that_the_ledger_refuses_stops_only_its_saga() -> None:
    """L2: one saga can't be written, again and again, with growing pauses; all others end."""

    def refuses(write: Write) -> bool:
        return write.saga.id == "s-7"

    async with rig(LyingLedger(Plan(refuses=refuses))) as stage:
        await asyncio.gather(*(stage.start(f"s-{n}") for n in range(MANY)))
        ends = await asyncio.gather(*(stage.end(f"s-{n}") for n in range(MANY) if n != 7))
        assert {stored.saga.state for stored in ends} == {COMMITTED}
        bad = await stage.engine.wait(SagaId("s-7"), timeout_s=0)
        assert bad is not None
        assert bad.saga.state is SagaState.RUNNING
        assert 0 < len(stage.telemetry.failures) < 20


async def test_another_writer_in_between() -> None:
    """A decision that was overtaken is made again on what stands now: the answer in hand is not thrown away."""
    ledger = MemoryLedger()

    async def answer(request: CallRequest) -> Answer:
        record = ledger.store.records[request.saga_id]
        record.stored = replace(record.stored, version=record.stored.version + 1)
        return await succeed(request)

    async with rig(ledger, answer=answer) as stage:
        assert (await stage.start("s")).started
        assert (await stage.end("s")).saga.state is COMMITTED
        assert stage.participants.sides("s") == ["a/action#1", "b/action#1"]


async def test_a_saga_that_somebody_else_drives_is_let_go() -> None:
    """S7: its calls are cancelled, nothing more is called, and it isn't counted as a failure."""
    ledger = MemoryLedger()
    called = asyncio.Event()

    async def answer(request: CallRequest) -> Answer:
        if request.step == "b":
            record = ledger.store.records[request.saga_id]
            another = NodeId("another")
            record.stored = replace(record.stored, version=record.stored.version + 1, owner=another)
            called.set()
        return await succeed(request)

    async with rig(ledger, answer=answer) as stage:
        assert (await stage.start("s", "a", "b", "c")).started
        await called.wait()
        await eventually(lambda: stage.running_sagas == 0, what="it lets go")
        assert stage.participants.sides("s") == ["a/action#1", "b/action#1"]
        assert not stage.telemetry.failures


async def test_a_fenced_node_calls_nothing_more() -> None:
    """S7: once a write finds it shut out, the engine ends with that, and calls under way are cancelled with it."""
    ledger = MemoryLedger()

    async def answer(request: CallRequest) -> Answer:
        if request.step == "b":
            ledger.store.fence(NODE)
        return await succeed(request)

    async with rig(ledger, answer=answer) as stage:
        assert (await stage.start("s", "a", "b", "c")).started
        with pytest.raises(NodeFencedError):
            await stage.running
        assert stage.participants.sides("s") == ["a/action#1", "b/action#1"]


async def test_who_waits_while_the_node_stops_is_answered_without_the_ledger() -> None:
    """S11: the saga as it was last known, because the ledger may be what the node stops for."""
    called, away = asyncio.Event(), asyncio.Event()

    async def answer(request: CallRequest) -> Answer:
        called.set()
        return await asyncio.Future[Answer]()

    async with rig(LyingLedger(Plan(before=lambda name: name == "load" and away.is_set())), answer=answer) as stage:
        await stage.start("s")
        waiting = asyncio.create_task(stage.engine.wait(SagaId("s"), timeout_s=60))
        await asyncio.sleep(0)  # it waits now; the call may have been made before
        await called.wait()
        away.set()
        await stage.engine.stop(0)
        stored = await asyncio.wait_for(waiting, 10)
        assert stored is not None
        assert stored.saga.state is SagaState.RUNNING


async def test_f20_garbage_is_collected_all_the_time() -> None:
    """F20: no task, timer or future is lost because only the loop knew it."""
    over = asyncio.Event()

    async def collect() -> None:
        while not over.is_set():
            gc.collect()
            await pause()

    async def answer(request: CallRequest) -> Answer:
        await pause()
        return LOST if (request.step, request.attempt) == ("a", 1) else await refuse_b(request)

    async with rig(MemoryLedger(), answer=answer) as stage:
        collecting = asyncio.create_task(collect())
        ends = await run_many(stage, 100)
        over.set()
        await collecting
        assert {stored.saga.state for stored in ends} == {COMPENSATED}
        assert not stage.telemetry.failures
