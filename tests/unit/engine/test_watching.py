"""Watching sagas: those driven here tell of themselves, of others the ledger is asked once for everybody who looks."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from amends import Retry, Saga
from amends_coordinator.core.answer import Answer
from amends_coordinator.core.ids import Instant, NodeId, SagaId
from amends_coordinator.core.states import IntentState, Outcome, Resolution, SagaState
from amends_coordinator.engine.waiting import Waiters
from amends_coordinator.engine.watching import ASKED_AT_ONCE
from amends_coordinator.ledger.memory import MemoryLedger
from amends_coordinator.ports.driving import (
    Person,
    StartRequest,
    StoppingError,
    TooManyWatchersError,
    UnknownSagaError,
)
from amends_coordinator.ports.ledger import LedgerUnavailableError, StoredSaga, UnreadableSagaError
from scenario.v1.scenario_pb2 import ScenarioInput, ScenarioOutput
from tests.conformance.ledger.rigs import lose_definition_of
from tests.scenarios.sagas import Do, Undo
from tests.unit.engine.rig import REFUSED, Rig, rig, stored, succeed
from tests.waiting import eventually, pause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amends_coordinator.ports.participants import CallRequest

SAGA = SagaId("s")
ELSEWHERE = NodeId("another-node")
ADA = Person(actor="unauthenticated:test", claimed_actor="ada", reason="a test")
ONCE = Retry(
    initial_delay=timedelta(milliseconds=1),
    maximum_delay=timedelta(milliseconds=1),
    total_timeout=timedelta(seconds=5),
    maximum_refusal_count=1,
)
BOUND_S = 20.0


class CountingLedger(MemoryLedger):
    """The ledger in memory; counts what is asked of it, and lets others write past the node."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()
        self.ids: list[Sequence[SagaId]] = []
        self.away = False

    async def load(self, saga_id: SagaId) -> StoredSaga | None:
        """See the port."""
        self.asked["load"] += 1
        return await super().load(saga_id)

    async def write_counts(self, ids: Sequence[SagaId]) -> dict[SagaId, int]:
        """See the port."""
        self.asked["write_counts"] += 1
        self.ids.append(ids)
        if self.away:
            raise LedgerUnavailableError("planted")
        return await super().write_counts(ids)

    def change(self, saga_id: SagaId, **columns: object) -> None:
        """Write a saga as another node would, whose saga it is from then on."""
        record = self.store.records[saga_id]
        saga = replace(record.stored.saga, **columns)  # type: ignore[arg-type]  # columns of the saga, by their names
        record.stored = StoredSaga(saga=saga, version=record.stored.version + 1, owner=ELSEWHERE)


class Watch:
    """Watches a saga in a task of its own and keeps what it is told."""

    def __init__(self, stage: Rig, saga_id: SagaId = SAGA, *, known: int = 0) -> None:
        self.told: list[StoredSaga] = []
        self._stage, self._saga_id, self._known = stage, saga_id, known
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with aclosing(self._stage.engine.watch(self._saga_id, known_version=self._known)) as changes:
            async for change in changes:
                self.told.append(change)

    @property
    def versions(self) -> list[int]:
        """The versions told so far."""
        return [each.version for each in self.told]

    @property
    def states(self) -> list[SagaState]:
        """The states told so far, each once while it lasts."""
        states = [each.saga.state for each in self.told]
        return [state for place, state in enumerate(states) if place == 0 or states[place - 1] is not state]

    async def over(self) -> None:
        """Wait until the stream ends by itself."""
        await asyncio.wait_for(self.task, BOUND_S)

    async def ended(self) -> None:
        """End it, as a client that goes away does."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Doors:
    """A participant that answers each step once its door is open; steps in `refused` are refused."""

    def __init__(self) -> None:
        self.open: dict[str, asyncio.Event] = {}
        self.refused: set[str] = set()

    async def answer(self, request: CallRequest) -> Answer:
        """Answer one call."""
        side = f"{request.step}/{request.direction.value.lower()}"
        await self.open.setdefault(side, asyncio.Event()).wait()
        return REFUSED if side in self.refused else await succeed(request)

    def let(self, *sides: str) -> None:
        """Open doors."""
        for side in sides:
            self.open.setdefault(side, asyncio.Event()).set()


async def elsewhere(stage: Rig, ledger: CountingLedger, *saga_ids: SagaId) -> None:
    """Sagas that another node drives, each written twice: this one has never had them in memory."""
    await stage.start("seed")
    await stage.end("seed")
    seed = ledger.store.records[SagaId("seed")]
    saga = replace(seed.stored.saga, state=SagaState.RUNNING, ended_time=None, due_time=Instant(1))
    for saga_id in saga_ids:
        stored = StoredSaga(saga=replace(saga, id=saga_id), version=2, owner=ELSEWHERE)
        ledger.store.records[saga_id] = replace(seed, stored=stored)


async def test_a_saga_that_is_driven_here_tells_of_itself() -> None:
    """Its state comes at once, then each change, each once; the end ends the stream, and the ledger is never asked."""
    ledger, doors = CountingLedger(), Doors()
    async with rig(ledger, answer=doors.answer) as stage:
        await stage.start("s")
        watch = Watch(stage)
        await eventually(lambda: watch.versions == [1], what="the saga as it is")
        assert watch.told[0].saga.intents[0].state is IntentState.PENDING
        doors.let("a/action")
        await eventually(lambda: watch.versions == [1, 2], what="the change")
        assert [intent.state for intent in watch.told[1].saga.intents] == [IntentState.SUCCEEDED, IntentState.PENDING]
        doors.let("b/action")
        await watch.over()
        assert watch.versions == [1, 2, 3]
        assert watch.told[-1].saga.state is SagaState.COMMITTED
        assert ledger.asked == {}


async def test_what_is_known_is_not_told_again() -> None:
    """A watcher that comes back with its version hears only of what was written later; after the end, nothing."""
    doors = Doors()
    async with rig(CountingLedger(), answer=doors.answer) as stage:
        await stage.start("s")
        known, older = Watch(stage, known=1), Watch(stage, known=7)
        await eventually(lambda: older.versions == [1], what="a version that isn't the known one is told")
        doors.let("a/action", "b/action")
        for watch in (known, older):
            await watch.over()
        assert known.told
        assert min(known.versions) > 1
        again = Watch(stage, known=known.versions[-1])
        await again.over()
        assert again.told == []


async def test_the_stream_ends_only_when_nothing_is_left_to_do() -> None:
    """`COMPENSATION_FAILED` waits for a person and doesn't end it, nor does a step that follows the compensation."""
    saga = Saga("followed", input=ScenarioInput, output=ScenarioOutput)
    first = saga.step("a", Do(name="a"))
    first.compensated_by(Undo(name="a"), by_key=True, retry=ONCE)
    saga.step("b", Do(name="b")).compensated_by(Undo(name="b"), by_key=True)
    saga.output(ScenarioOutput)(effect_id=first.response.effect_id)
    saga.on_compensated("told", Do(name="told"), retry=ONCE)
    doors = Doors()
    doors.refused |= {"b/action", "a/compensation", "told/action"}
    doors.let("a/action", "b/action", "a/compensation", "told/action")
    async with rig(CountingLedger(), answer=doors.answer) as stage:
        kept = await stage.ledger.put_definition(stored(saga))
        await stage.engine.start(StartRequest(saga_id=SAGA, definition=kept, input=b""))
        watch = Watch(stage)
        for parked in ("s/a/compensation", "s/told/action"):
            await eventually(lambda: _is_open(watch, parked), what=f"{parked} is parked")  # noqa: B023 - asked at once
            (letter,) = (each for each in watch.told[-1].saga.dead_letters if each.closed_time is None)
            await pause()
            assert not watch.task.done()
            await stage.engine.verbs.resolve(letter.id, ADA, resolution=Resolution.HAPPENED, response=b"")
        await watch.over()
        assert watch.told[-1].saga.state is SagaState.COMPENSATED
        assert SagaState.COMPENSATION_FAILED in watch.states
        assert watch.versions == sorted(set(watch.versions))


def _is_open(watch: Watch, letter: str) -> bool:
    return any(
        each.id.startswith(letter) and each.closed_time is None
        for told in watch.told[-1:]
        for each in told.saga.dead_letters
    )


async def test_fifty_watchers_are_one_question() -> None:
    """Of sagas that nobody here drives the ledger is asked once for all who watch or wait, and not at all when nobody
    does; what has changed is loaded once, and told to everybody.
    """
    ledger = CountingLedger()
    async with rig(ledger) as stage:
        ids = [SagaId(f"s-{number}") for number in range(5)]
        await elsewhere(stage, ledger, *ids)
        watches = [Watch(stage, ids[number % 5]) for number in range(50)]
        waits = [asyncio.create_task(stage.engine.wait(saga_id, timeout_s=BOUND_S)) for saga_id in ids]
        await eventually(lambda: all(watch.told for watch in watches), what="all are told how it stands")
        await _passed(ledger, 1)
        ledger.asked.clear()
        await _passed(ledger, 3)
        assert ledger.asked["load"] == 0
        assert {frozenset(asked) for asked in ledger.ids} == {frozenset(ids)}
        for saga_id in ids:
            ledger.change(saga_id, state=SagaState.COMMITTED, due_time=None)
        for watch in watches:
            await watch.over()
            assert watch.versions == [2, 3]
        for wait in waits:
            told = await asyncio.wait_for(wait, BOUND_S)
            assert told is not None
            assert told.saga.state is SagaState.COMMITTED
        assert ledger.asked["load"] == len(ids)
        ledger.asked.clear()
        for _ in range(50):  # longer than two looks
            await pause()
        assert ledger.asked == {}


async def _passed(ledger: CountingLedger, questions: int) -> None:
    before = ledger.asked["write_counts"]
    await eventually(lambda: ledger.asked["write_counts"] >= before + questions, what="the ledger is asked")


async def test_whose_time_is_over_gets_the_saga_as_it_is() -> None:
    """A wait that ends with its time answers what the last look found, not what stood there when it began."""
    ledger = CountingLedger()
    async with rig(ledger) as stage:
        await elsewhere(stage, ledger, SAGA)
        wait = asyncio.create_task(stage.engine.wait(SAGA, timeout_s=1.5))
        await _passed(ledger, 1)
        ledger.change(SAGA, state=SagaState.COMPENSATING)
        told = await asyncio.wait_for(wait, BOUND_S)
        assert told is not None
        assert (told.version, told.saga.state) == (3, SagaState.COMPENSATING)


async def test_nobody_asks_for_a_saga_whose_end_was_told() -> None:
    """Those who waited may not have gone on yet when the ledger is asked again. One who comes meanwhile stays."""
    waiters = Waiters()
    first = waiters.enter(SAGA)
    waiters.wake(SAGA, None)
    assert (first.done(), set(waiters.saga_ids)) == (True, set())
    second = waiters.enter(SAGA)
    waiters.leave(SAGA, first)
    assert (second.done(), set(waiters.saga_ids)) == (False, {SAGA})
    waiters.leave(SAGA, second)
    assert set(waiters.saga_ids) == set()


async def test_very_many_take_turns() -> None:
    """However many are looked at, one question stays small, and each has its turn."""
    ledger = CountingLedger()
    async with rig(ledger, max_watchers=2 * ASKED_AT_ONCE) as stage:
        ids = [SagaId(f"s-{number}") for number in range(ASKED_AT_ONCE + 100)]
        await elsewhere(stage, ledger, *ids)
        watches = [Watch(stage, saga_id) for saga_id in ids]
        await eventually(lambda: all(watch.told for watch in watches), what="all are told how it stands")
        await _passed(ledger, 2)
        assert {saga_id for asked in ledger.ids[-2:] for saga_id in asked} == set(ids)
        assert max(len(asked) for asked in ledger.ids) == ASKED_AT_ONCE
        for watch in watches:
            await watch.ended()


async def test_a_slow_reader_gets_the_newest() -> None:
    """Whoever doesn't read has one saga kept, and that is the newest: what came in between is never queued."""
    doors = Doors()
    async with rig(CountingLedger(), answer=doors.answer) as stage:
        await stage.start("s", "a", "b", "c")
        async with aclosing(stage.engine.watch(SAGA, known_version=0)) as changes:
            assert (await anext(changes)).version == 1
            doors.let("a/action", "b/action", "c/action")
            await stage.end("s")
            newest = await anext(changes)
            assert (newest.version, newest.saga.state) == (4, SagaState.COMMITTED)
            with pytest.raises(StopAsyncIteration):
                await anext(changes)


async def test_a_ledger_that_is_away_holds_a_stream_up_only() -> None:
    """The stream stays through an outage, and goes on with what was written meanwhile."""
    ledger = CountingLedger()
    async with rig(ledger) as stage:
        await elsewhere(stage, ledger, SAGA)
        watch = Watch(stage)
        await eventually(lambda: len(watch.told) == 1, what="the saga as it is")
        ledger.away = True
        await _passed(ledger, 2)
        ledger.change(SAGA, state=SagaState.COMPENSATING)
        await _passed(ledger, 2)
        assert len(watch.told) == 1
        ledger.away = False
        await eventually(lambda: len(watch.told) == 2, what="the change")
        await watch.ended()


async def test_a_saga_that_left_memory_and_came_back() -> None:
    """Nothing is missed or told twice while a saga goes from its driver to the ledger and back."""
    calls = 0

    async def answer(request: CallRequest) -> Answer:
        nonlocal calls
        calls += 1
        if request.attempt < 4:
            return Answer(outcome=Outcome.UNKNOWN, status_code="UNAVAILABLE", message="no answer")
        return await succeed(request)

    ledger = CountingLedger()
    async with rig(ledger, answer=answer, idle_unload_s=0.001) as stage:
        await stage.start("s")
        watch = Watch(stage)
        await watch.over()
        assert watch.versions == sorted(set(watch.versions))
        assert watch.told[-1].saga.state is SagaState.COMMITTED
        attempts = [watched.saga.intents[0].attempt for watched in watch.told]
        assert attempts == sorted(attempts)
        assert set(attempts) == {1, 2, 3, 4}


async def test_a_saga_that_cannot_be_read_any_more() -> None:
    """Whoever watches or waits for it hears that; others are not affected (L2)."""
    ledger = CountingLedger()
    async with rig(ledger) as stage:
        await elsewhere(stage, ledger, SAGA, SagaId("other"))
        watch, other = Watch(stage), Watch(stage, SagaId("other"))
        wait = asyncio.create_task(stage.engine.wait(SAGA, timeout_s=BOUND_S))
        await eventually(lambda: bool(watch.told and other.told), what="the saga as it is")
        lose_definition_of(ledger.store, SAGA)
        ledger.change(SAGA)
        for looking in (watch.task, wait):
            with pytest.raises(UnreadableSagaError):
                await asyncio.wait_for(looking, BOUND_S)
        ledger.change(SagaId("other"), state=SagaState.COMMITTED, due_time=None)
        await other.over()


async def test_who_may_not_watch() -> None:
    """An unknown saga, more watchers than may, a node that stops: each says what it is; room comes back."""
    doors = Doors()
    async with rig(CountingLedger(), answer=doors.answer, max_watchers=1) as stage:
        with pytest.raises(UnknownSagaError):
            await anext(stage.engine.watch(SagaId("nobody"), known_version=0))
        await stage.start("s")
        first = Watch(stage)
        await eventually(lambda: bool(first.told), what="the saga as it is")
        with pytest.raises(TooManyWatchersError, match="1 streams watch"):
            await anext(stage.engine.watch(SAGA, known_version=0))
        await first.ended()
        second = Watch(stage)
        await eventually(lambda: bool(second.told), what="the room is free again")
        await stage.engine.stop(0.0)
        with pytest.raises(StoppingError):
            await asyncio.wait_for(second.task, BOUND_S)
        with pytest.raises(StoppingError):
            await anext(stage.engine.watch(SAGA, known_version=0))


@pytest.mark.parametrize("known", [0, 2])
async def test_a_write_between_entering_and_looking_is_not_missed(known: int) -> None:
    """A watcher enters first and looks afterwards: what is written while the ledger answers comes, and comes once."""
    gate, asked = asyncio.Event(), asyncio.Event()

    class Slow(CountingLedger):
        async def load(self, saga_id: SagaId) -> StoredSaga | None:
            found = await super().load(saga_id)
            if not gate.is_set():
                asked.set()
                await gate.wait()
            return found

    ledger = Slow()
    gate.set()
    async with rig(ledger, sweep_interval_s=5.0) as stage:
        await elsewhere(stage, ledger, SAGA)
        gate.clear()
        watch = Watch(stage, known=known)
        await asked.wait()
        ledger.change(SAGA, state=SagaState.COMMITTED, due_time=None)
        gate.set()
        await watch.over()
        assert watch.versions == ([3] if known else [2, 3])
