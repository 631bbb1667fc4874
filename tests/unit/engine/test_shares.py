"""The room in memory is shared out: what one participant's sagas may take, and who waits for whom."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING

import pytest

from amends import Saga
from amends_coordinator.core.answer import Answer
from amends_coordinator.core.ids import NodeId, SagaId
from amends_coordinator.core.states import Outcome, SagaState
from amends_coordinator.engine import shares
from amends_coordinator.engine.shares import Shares
from amends_coordinator.engine.standing import Standing
from amends_coordinator.ledger.memory import MemoryLedger
from amends_coordinator.ports.driving import Person, StartRequest
from amends_coordinator.ports.participants import FULL
from scenario.v1.scenario_pb2 import ScenarioInput, ScenarioOutput
from tests.scenarios.sagas import QUICK, Do, ScenarioSaga, Undo
from tests.unit.engine.rig import LOST, NOT_SENT, Rig, rig, stored, succeed
from tests.waiting import eventually

if TYPE_CHECKING:
    from amends_coordinator.core.definition import StoredDefinition
    from amends_coordinator.ports.participants import CallRequest

ROOM, SHARE = 20, 10
MANY = 100
OK = Answer(outcome=Outcome.SUCCEEDED, status_code="OK")
TRY_LATER = Answer(outcome=Outcome.NOT_SENT, status_code="UNAVAILABLE", message="full")
WAITED = Answer(outcome=Outcome.NOT_SENT, message="full", reason=FULL)


@cache
def through(*participants: str, side_by_side: bool) -> StoredDefinition:
    """A saga with one step at each of these participants, named like them."""
    how = "beside" if side_by_side else "through"
    saga: ScenarioSaga = Saga("-".join((how, *participants)), input=ScenarioInput, output=ScenarioOutput)
    after = () if side_by_side else None
    for name in participants:
        step = saga.step(name, Do(name=name), participant=name, retry=QUICK, after=after)
        step.compensated_by(Undo(name=name), by_key=True)
    saga.output(ScenarioOutput)()
    return stored(saga)


async def start(stage: Rig, saga_id: str, *participants: str, side_by_side: bool = False) -> None:
    """Start a saga that goes through these participants."""
    definition = await stage.ledger.put_definition(through(*participants, side_by_side=side_by_side))
    await stage.engine.start(StartRequest(saga_id=SagaId(saga_id), definition=definition, input=b""))


async def all_commit(stage: Rig, *prefixes: str) -> None:
    """All sagas of these names commit, and every step of theirs has succeeded once."""
    for prefix in prefixes:
        for number in range(MANY):
            ended = await stage.end(f"{prefix}-{number}")
            assert ended.saga.state is SagaState.COMMITTED
            outcomes = [[each.outcome for each in intent.attempts] for intent in ended.saga.intents]
            assert all(each.count(Outcome.SUCCEEDED) == 1 for each in outcomes)
            assert not any(Outcome.UNKNOWN in each for each in outcomes), "nobody's call was left behind"


class Door:
    """Participants that answer, but for "slow" or others, which wait for the door."""

    def __init__(self, *slow: str) -> None:
        self._slow = slow or ("slow",)
        self.open = asyncio.Event()
        self.inside = 0
        self.most = 0

    async def answer(self, request: CallRequest) -> Answer:
        """Answer one call."""
        if request.participant in self._slow:
            self.inside += 1
            self.most = max(self.most, self.inside)
            await self.open.wait()
            self.inside -= 1
        return await succeed(request)


async def test_one_participant_takes_at_most_its_share() -> None:
    """L2: sagas that begin at a participant that hangs wait in the ledger, and nobody waits behind them; once it goes
    they all do.
    """
    door = Door()
    async with rig(MemoryLedger(), answer=door.answer, max_running_sagas=ROOM) as stage:
        for number in range(MANY):
            await start(stage, f"slow-{number}", "slow")
        assert door.inside <= stage.running_sagas == SHARE
        for number in range(MANY):
            await start(stage, f"quick-{number}", "quick")
            assert (await stage.end(f"quick-{number}")).saga.state is SagaState.COMMITTED
        assert stage.running_sagas == SHARE
        door.open.set()
        await all_commit(stage, "slow")
        assert door.most <= SHARE


async def test_who_comes_to_a_crowded_participant_goes_back_to_the_ledger() -> None:
    """L2, S12: sagas that come to it from elsewhere leave memory without a call that nobody hears of, and without
    spending anything; they are taken up again, each with one call.
    """
    door = Door()
    async with rig(MemoryLedger(), answer=door.answer, max_running_sagas=ROOM) as stage:
        for number in range(MANY):
            await start(stage, f"slow-{number}", "quick", "slow")
        quick = [f"slow-{number}" for number in range(MANY)]
        await eventually(
            lambda: (
                sum(call.step == "quick" for call in stage.participants.calls) == len(quick)
                and stage.running_sagas == SHARE
            ),
            what="all have come to the one that is slow, and those that it has no room for have left",
        )
        assert door.inside == SHARE
        await start(stage, "late", "quick")
        assert (await stage.end("late")).saga.state is SagaState.COMMITTED
        door.open.set()
        await all_commit(stage, "slow")
        assert door.most == SHARE
        assert sum(call.step == "slow" for call in stage.participants.calls) == MANY


async def test_who_finds_no_room_at_any_of_its_participants_waits_for_its_turn() -> None:
    """L1, L2: sagas whose steps run side by side at two participants that hang are not taken up again and again."""
    door, ledger = Door("slow", "stuck"), MemoryLedger()
    async with rig(ledger, answer=door.answer, max_running_sagas=ROOM) as stage:
        for number in range(MANY):
            await start(stage, f"slow-{number}", "slow", "stuck", side_by_side=True)
        for number in range(MANY):
            await start(stage, f"quick-{number}", "quick")
            assert (await stage.end(f"quick-{number}")).saga.state is SagaState.COMMITTED
        passed_time = stage.engine.last_pass_time
        await eventually(lambda: stage.engine.last_pass_time != passed_time, what="the sweeper has looked again")
        begun = [saga_id for saga_id, record in ledger.store.records.items() if record.stored.saga.begun]
        assert sum(saga_id.startswith("slow") for saga_id in begun) == SHARE
        door.open.set()
        await all_commit(stage, "slow")


async def test_what_a_crash_left_behind_keeps_nobody_waiting() -> None:
    """L1, L2: after a restart it comes before what is new, but only as far as its participant's share goes."""
    door, ledger = Door(), MemoryLedger()
    async with rig(ledger, answer=door.answer, max_running_sagas=10 * MANY) as stage:
        for number in range(MANY):
            await start(stage, f"slow-{number}", "slow")
    again = Door()
    next_ledger = MemoryLedger(ledger.store)
    async with rig(next_ledger, answer=again.answer, node=NodeId("node-2"), max_running_sagas=ROOM) as stage:
        await eventually(lambda: again.inside == SHARE, what="as many are driven as there is room for")
        for number in range(SHARE):
            await start(stage, f"quick-{number}", "quick")
            assert (await stage.end(f"quick-{number}")).saga.state is SagaState.COMMITTED
        assert again.inside == stage.running_sagas == SHARE
        again.open.set()
        for number in range(MANY):
            assert (await stage.end(f"slow-{number}")).saga.state is SagaState.COMMITTED
    assert again.most == SHARE


async def test_sagas_that_back_off_take_turns() -> None:
    """L1, L2: who waits for its next attempt leaves its place to those that have not had one yet."""
    tried: set[str] = set()

    async def answer(request: CallRequest) -> Answer:
        tried.add(request.saga_id)
        return LOST if len(tried) < MANY else await succeed(request)

    async with rig(MemoryLedger(), answer=answer, max_running_sagas=ROOM) as stage:
        for number in range(MANY):
            await start(stage, f"s-{number}", "flaky")
        for number in range(MANY):
            assert (await stage.end(f"s-{number}")).saga.state is SagaState.COMMITTED


async def test_one_that_rolls_back_in_time_waits_for_nobody() -> None:
    """L1: an abort of a saga that waits in the ledger for a crowded participant is heard of at once."""
    door = Door()
    async with rig(MemoryLedger(), answer=door.answer, max_running_sagas=ROOM, sweep_interval_s=60.0) as stage:
        for number in range(2 * SHARE):
            await start(stage, f"slow-{number}", "slow")
        person = Person(actor="unauthenticated:test", claimed_actor="ada", reason="a test")
        last = f"slow-{2 * SHARE - 1}"
        async with asyncio.timeout(10):
            await stage.engine.verbs.abort(SagaId(last), person)
            assert (await stage.end(last)).saga.state is SagaState.COMPENSATED
        assert not stage.participants.sides(last)
        door.open.set()


async def test_few_go_on_trying_where_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """L2: thousands that all try and fail cost everybody's time; once it answers, they all go on."""
    monkeypatch.setattr(shares, "PROBING", 2)
    answers = asyncio.Event()
    lost = 0

    async def answer(request: CallRequest) -> Answer:
        nonlocal lost
        if answers.is_set():
            return await succeed(request)
        lost += 1
        return NOT_SENT

    async with rig(MemoryLedger(), answer=answer, max_running_sagas=ROOM) as stage:
        for number in range(MANY):
            await start(stage, f"s-{number}", "down")
        await eventually(lambda: lost > 5 * SHARE and stage.running_sagas <= 2, what="only a few try")
        answers.set()
        for number in range(MANY):
            assert (await stage.end(f"s-{number}")).saga.state is SagaState.COMMITTED


def nothing() -> None:
    """Nobody waits to hear of room."""


def free(room: Shares, name: str) -> int:
    """How many more a participant may have."""
    found = room.room(is_served=lambda _: False).room
    return found.left.get(name, found.each)


def test_silence_makes_slow_and_each_answer_lets_one_more_in() -> None:
    """L2: ten attempts in a row without an answer, not ten in all; refusals and waiting for a slot are no silence."""
    room = Shares(100, room_made=nothing)
    for answer in (LOST, NOT_SENT) * 5:
        room.heard("bank", OK)
        room.heard("bank", answer)
    for _ in range(20):
        room.heard("bank", WAITED)
        room.heard("shop", TRY_LATER)
    assert (free(room, "bank"), free(room, "shop")) == (100, 100)
    for _ in range(9):
        room.heard("bank", LOST)
    assert (free(room, "bank"), free(room, "shop")) == (shares.PROBING, 100)
    room.heard("bank", OK)
    assert free(room, "bank") == shares.PROBING + 1
    for _ in range(100):
        room.heard("bank", OK)
    assert free(room, "bank") == 100


def test_a_service_that_is_served_at_last_need_not_go_slowly() -> None:
    """L1: what had nobody to call is called as soon as there is somebody."""
    room = Shares(100, room_made=nothing)
    for _ in range(20):
        room.heard("shop.v1.ShopService", NOT_SENT)
    assert free(room, "shop.v1.ShopService") == shares.PROBING
    found = room.room(is_served=lambda name: name == "shop.v1.ShopService").room
    assert found.left.get("shop.v1.ShopService", found.each) == 100


def test_a_saga_keeps_its_place_while_it_stays_and_leaves_nothing_behind() -> None:
    """L2: it counts once at each participant, and nowhere once it is gone."""
    made: list[None] = []
    room = Shares(2, room_made=lambda: made.append(None))
    first, second, third = Standing(room), Standing(room), Standing(room)
    first.move(("bank", "shop"))
    second.move(("bank",))
    third.move(("bank", "shop"))
    assert (first.turned_away, second.turned_away, third.turned_away) == ((), (), ("bank",))
    assert (third.admits("shop"), third.admits("bank"), first.is_in_the_way) == (True, False, True)
    assert (first.waits_for(first.names), second.waits_for(second.names)) == ("", "bank")
    assert third.waits_for(("shop", "bank")) == "", "there is room in the shop"
    second.move(("bank",))
    assert not made
    second.move(("shop",))
    assert second.turned_away == ("shop",)
    assert made, "somebody waits for the bank, and there is room"
    assert third.admits("bank")
    for each in (first, second, third):
        each.leave()
        each.leave()
    assert free(room, "bank") == free(room, "shop") == 2


def test_new_ones_wait_until_a_claim_has_found_nobody_before_them() -> None:
    """L1: who was left waiting after a claim had looked is not forgotten."""
    room = Shares(10, room_made=nothing)
    room.leave_waiting(("bank",))
    looked = room.room(is_served=lambda _: False)
    room.claimed(looked, {"bank": 10}, all_that_fit=True)
    assert room.is_behind("bank"), "it took all that there was room for: there may be more"
    room.claimed(looked, {"bank": 9}, all_that_fit=False)
    assert room.is_behind("bank"), "it was cut short"
    room.leave_waiting(("bank",))
    room.claimed(looked, {}, all_that_fit=True)
    assert room.is_behind("bank"), "one came since"
    room.claimed(room.room(is_served=lambda _: False), {}, all_that_fit=True)
    assert not room.is_behind("bank")
