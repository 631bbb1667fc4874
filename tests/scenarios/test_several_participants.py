"""Several participants of one service: the step says which one it is for, by name or by a field of the saga's input."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import pytest

from amends import Committed, Compensated, Guarantee, Retry, Saga, method
from amends.v1 import saga_pb2
from scenario.v1.scenario_pb2 import DoFindableRequest, FindRequest, FindResponse, ScenarioInput
from scenario.v1.scenario_pb2_grpc import StepServiceServicer
from tests.scenarios.inside import inside
from tests.scenarios.raw import Reply, raw_steps
from tests.scenarios.sagas import QUICK, Do, Undo, steps
from tests.unit.grpc_api.samples import SERVICE
from tests.waiting import eventually, pause

if TYPE_CHECKING:
    from pathlib import Path

    from tests.scenarios.inside import Inside

pytestmark = pytest.mark.scenario

BOUND = timedelta(seconds=30)
LOST = Reply(code=grpc.StatusCode.UNAVAILABLE)
NO = Reply(code=grpc.StatusCode.FAILED_PRECONDITION)
SEALED = Reply(code=grpc.StatusCode.FAILED_PRECONDITION, trailers=(("amends-sealed", "1"),))
OTHER = "typed.v1.TravelService"
DoFindable = method(StepServiceServicer.DoFindable, DoFindableRequest, FindResponse)
Find = method(StepServiceServicer.Find, FindRequest, FindResponse)


def choosing() -> Saga[ScenarioInput, None]:
    """Step a at the participant that the input names, step b always at "two"."""
    saga = Saga("choosing", input=ScenarioInput)
    once = Retry(initial_delay=timedelta(milliseconds=20), total_timeout=timedelta(milliseconds=100))
    a = saga.step("a", DoFindable(name="a"), participant=saga.input.note, retry=once, guarantee=Guarantee.KEY)
    a.compensated_by(Undo(name="a"), by_key=True, retry=QUICK).looked_up_by(Find(name="a"), retry=QUICK)
    saga.step("b", Do(name="b"), participant="two", retry=QUICK).compensated_by(Undo(name="b"))
    return saga


async def saga_once_not_sent(coordinator: Inside, saga_id: str) -> saga_pb2.Saga:
    """The saga, once its last call was tried and never handed to anybody; the test's own timeout bounds it."""
    while not (saga := await coordinator.client.get(saga_id)).intents[-1].last_error:
        await pause()
    return saga


def rows_of_chosen(data: Path) -> list[tuple[str, str]]:
    """Sagas with the participants that their inputs chose, as an operator asks for them with plain SQL."""
    with closing(sqlite3.connect(data / "ledger.db")) as connection:
        found: list[tuple[str, str]] = connection.execute(
            "select saga_id, participant from saga_participant order by 1, 2"
        ).fetchall()
    return found


async def test_all_calls_of_a_step_go_to_the_participant_that_the_input_names(tmp_path: Path) -> None:
    """Action, lookup and compensation, on both sides of a restart; `GetSaga` names the participant with each."""
    saga = choosing()
    async with raw_steps({"a": [LOST], "find_a": [LOST]}) as one, raw_steps({"b": [NO]}) as two:
        async with inside(tmp_path) as coordinator:
            await coordinator.announce("one", one.address)
            await coordinator.announce("two", two.address)
            await coordinator.client.start(saga, ScenarioInput(note="one"), saga_id="s")
            await eventually(lambda: len(one.calls("a/lookup")) > 0, what="the action is looked up")
        one.plan = {}
        async with inside(tmp_path) as coordinator:
            handle = coordinator.client.handle(saga, "s")
            assert isinstance(await handle.wait(BOUND), Compensated)
            found = await handle.get()
    assert {seen.side for seen in one.seen} == {"a/action", "a/lookup", "a/compensation"}
    assert [seen.metadata["amends-action-target"] for seen in one.calls("a/compensation")] == ["same"]
    assert {seen.side for seen in two.seen} == {"b/action"}
    assert {(row.step, row.participant) for row in found.intents} == {("a", "one"), ("b", "two")}
    assert len(found.intents) == 4
    assert rows_of_chosen(tmp_path) == [("s", "one")]


async def test_a_saga_that_waits_for_room_can_be_found_by_the_participant_it_chose(tmp_path: Path) -> None:
    """What an input chose is stored with the saga, also when nobody drives it yet; two steps may choose one."""
    saga = Saga("choosing", input=ScenarioInput)
    saga.read_only("a", Do(name="a"), participant=saga.input.note)
    saga.read_only("b", Do(name="b"), participant=saga.input.note)
    async with inside(tmp_path, max_running_sagas=1) as coordinator:
        for number, name in enumerate(("one", "two", "one")):
            await coordinator.client.start(saga, ScenarioInput(note=name), saga_id=f"s-{number}")
        assert rows_of_chosen(tmp_path) == [("s-0", "one"), ("s-1", "two"), ("s-2", "one")]


async def test_a_participant_that_nobody_knows_is_waited_for(tmp_path: Path) -> None:
    """L1: a name that nobody has waits like a participant that is down, and no other one is called in its place."""
    saga = choosing()
    async with raw_steps() as two, raw_steps() as three, inside(tmp_path) as coordinator:
        await coordinator.announce("two", two.address)
        handle = await coordinator.client.start(saga, ScenarioInput(note="three"), saga_id="s")
        waiting = await saga_once_not_sent(coordinator, "s")
        assert waiting.state == saga_pb2.Saga.STATE_RUNNING
        assert waiting.intents[0].last_error.startswith("participant three doesn't serve scenario.v1.StepService")
        assert not two.seen
        await coordinator.announce("three", three.address)
        assert isinstance(await handle.wait(BOUND), Committed)
    assert [seen.side for seen in three.seen] == ["a/action"]
    assert [seen.side for seen in two.seen] == ["b/action"]


async def test_of_two_participants_none_is_called_until_there_is_one(tmp_path: Path) -> None:
    """S2: one key could reach both, so nothing is sent and the saga waits, listed, with a sentence that mends it; sagas
    that name one go on (L2), and so does this one, once a single participant is left.
    """
    saga = steps("a", "b", timeout=timedelta(minutes=5))
    async with raw_steps() as one, raw_steps() as two, inside(tmp_path) as coordinator:
        await coordinator.announce("one", one.address)
        await coordinator.announce("two", two.address)
        handle = await coordinator.client.start(saga, ScenarioInput(), saga_id="s")
        waiting = await saga_once_not_sent(coordinator, "s")
        assert waiting.intents[0].last_error == (
            "2 participants serve scenario.v1.StepService: one, two; name one in the step (`participant`, or"
            " `participant_input`)"
        )
        assert (waiting.state, waiting.intents[0].participant) == (saga_pb2.Saga.STATE_RUNNING, "")
        assert isinstance(
            await (await coordinator.client.start(choosing(), ScenarioInput(note="one"))).wait(), Committed
        )
        assert not [seen for seen in (*one.seen, *two.seen) if seen.metadata["amends-saga-id"] == "s"]
        await coordinator.withdraw("one")
        assert isinstance(await handle.wait(BOUND), Committed)
        found = await handle.get()
    assert [seen.side for seen in two.seen if seen.metadata["amends-saga-id"] == "s"] == ["a/action", "b/action"]
    assert {row.participant for row in found.intents} == {"two"}


async def test_what_took_its_place_is_not_called_for_it(tmp_path: Path) -> None:
    """S2, S4: the participant that was called with an action is away, another one serves the method: neither the
    repeated action nor the undo goes there, also after a restart; both reach the first one when it is back, elsewhere.
    """
    saga = steps("a", "b", by_key=True)
    async with raw_steps() as other:
        async with inside(tmp_path) as coordinator:
            async with raw_steps({"b": [LOST]}) as before:
                await coordinator.announce("one", before.address, instance_id="before")
                await coordinator.client.start(saga, ScenarioInput(), saga_id="s")
                await eventually(lambda: len(before.calls("b/action")) > 0, what="b is called")
            await coordinator.withdraw("one", "before")
            await coordinator.announce("two", other.address)
        async with inside(tmp_path) as coordinator, raw_steps({"b": [SEALED]}) as back:
            waiting = await saga_once_not_sent(coordinator, "s")
            assert waiting.intents[-1].participant == "one"
            await coordinator.announce("one", back.address, instance_id="back")
            assert isinstance(await coordinator.client.handle(saga, "s").wait(BOUND), Compensated)
    assert not other.seen
    assert [seen.side for seen in back.seen] == ["b/action", "a/compensation"]
    assert back.seen[1].metadata["amends-action-target"] == "same"


async def test_an_undo_that_is_due_after_the_move(tmp_path: Path) -> None:
    """The old process is gone, the new one has another address and serves more: the undos of old sagas reach it."""
    saga = steps("a", "b")
    async with inside(tmp_path) as coordinator:
        async with raw_steps({"b": [NO], "undo_a": [LOST]}) as before:
            await coordinator.announce("raw", before.address, instance_id="before")
            handle = await coordinator.client.start(saga, ScenarioInput(), saga_id="s")
            await eventually(lambda: len(before.calls("a/compensation")) > 0, what="the undo is called")
        await coordinator.withdraw("raw", "before")
        async with raw_steps() as after:
            await coordinator.announce("raw", after.address, instance_id="after", services=[OTHER, SERVICE])
            assert isinstance(await handle.wait(BOUND), Compensated)
    assert [seen.side for seen in after.seen] == ["a/compensation"]
    assert after.seen[0].metadata["idempotency-key"] == before.calls("a/compensation")[0].metadata["idempotency-key"]


async def test_a_participant_that_serves_something_else_now(tmp_path: Path) -> None:
    """L1: where it no longer serves the method the undo waits and says so, whoever serves it now; it is called as soon
    as the participant serves the method again.
    """
    saga = steps("a", "b")
    plan = {"b": [NO], "undo_a": [LOST]}
    async with inside(tmp_path) as coordinator, raw_steps(plan) as raw, raw_steps() as other:
        await coordinator.announce("raw", raw.address)
        handle = await coordinator.client.start(saga, ScenarioInput(), saga_id="s")
        await eventually(lambda: len(raw.calls("a/compensation")) > 0, what="the undo is called")
        await coordinator.announce("raw", raw.address, services=[OTHER])
        await coordinator.announce("other", other.address)
        while "doesn't serve" not in (await coordinator.client.get("s")).intents[-1].last_error:
            await pause()
        assert not other.seen
        lost, raw.plan = len(raw.calls("a/compensation")), {}
        await coordinator.announce("raw", raw.address, services=[OTHER, SERVICE])
        assert isinstance(await handle.wait(BOUND), Compensated)
    assert len(raw.calls("a/compensation")) == lost + 1
