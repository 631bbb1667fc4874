"""Forgetting: in batches, beside calls, and with an honest answer to whoever asks about what is gone (V12)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import grpc
import pytest
from sqlalchemy import event

from amends import barrier
from amends.barrier import statements
from tests.conformance.barrier.stage import Rig, Stage, Step

OK, ABORTED = grpc.StatusCode.OK, grpc.StatusCode.ABORTED
NOT_FOUND = grpc.StatusCode.NOT_FOUND

DAY = timedelta(days=1)


def step_of_age(age: timedelta, saga_id: str = "s-old", *, kind: str = "compensatable", target: str = "same") -> Step:
    """A step whose action was first announced that long ago."""
    return Step(saga_id=saga_id, kind=kind, target=target, step_time=datetime.now(UTC) - age)


async def test_v12_what_was_forgotten_is_not_known(stage: Stage) -> None:
    """V12, S4: neither done nor not done: nothing runs, nothing is marked, and the text says why."""
    old, young = step_of_age(3 * DAY), step_of_age(DAY, "s-young")
    for step in (old, young):
        assert (await stage.do(step)).code is OK
    assert await stage.rig.purge(older_than=2 * DAY) == 1
    retriable = step_of_age(3 * DAY, "s-retriable", kind="retriable")
    elsewhere = step_of_age(3 * DAY, "s-elsewhere", target="other")
    answers = [
        await stage.do(old),
        await stage.undo(old),
        await stage.find(old),
        await stage.find(retriable),
        await stage.undo(elsewhere),
    ]
    assert {(answer.code, answer.sealed) for answer in answers} == {(ABORTED, False)}
    assert all("too old to know" in answer.text for answer in answers)
    assert (await stage.do(young)).code is OK
    assert stage.rig.effects() == ["s-old", "s-young"]
    assert stage.rig.rows() == {"s-young/do/action": "done"}


async def test_v12_a_purge_between_the_two_claims_of_a_compensation(stage: Stage) -> None:
    """V12, S4: the action's row was there when the compensation had claimed its own, and gone when it claimed that one.
    Nobody knows what there is to undo: no mark, and no "nothing to undo" for work that stands.
    """
    if not stage.rig.on_postgres:
        pytest.skip("SQLite has one writer at a time, and the compensation is it")
    step = step_of_age(3 * DAY)
    assert (await stage.do(step)).code is OK
    forgotten, deleted = datetime.now(UTC) - 2 * DAY, list[int]()

    def purge_once_the_horizon_was_asked_for(*asked: object) -> None:
        if deleted or "amends_barrier_horizon" not in str(asked[2]):
            return
        with stage.rig.outside.begin() as connection:
            statements.move_horizon(connection, forgotten)
        with stage.rig.outside.begin() as connection:
            deleted.append(statements.delete_forgotten(connection, before=forgotten, limit=10))

    event.listen(stage.rig.engine, "after_cursor_execute", purge_once_the_horizon_was_asked_for)
    assert (await stage.undo(step)).code is ABORTED
    assert deleted == [1]
    assert (stage.rig.effects(), stage.rig.rows()) == (["s-old"], {})


async def test_what_is_not_forgotten_is_known_however_old(stage: Stage) -> None:
    """S2: without a purge, or before its horizon, age is no obstacle."""
    await stage.rig.purge(older_than=3 * DAY)
    step = step_of_age(2 * DAY)
    assert (await stage.find(step_of_age(2 * DAY, "s-2"))).sealed
    assert [(await stage.do(step)).code for _ in range(2)] == [OK, OK]
    assert (await stage.undo(step)).code is OK


async def test_the_horizon_never_moves_back(stage: Stage) -> None:
    """V12: who purged more than the next one asks for has forgotten it all the same."""
    await stage.rig.purge(older_than=DAY)
    await stage.rig.purge(older_than=5 * DAY)
    assert (await stage.do(step_of_age(3 * DAY))).code is ABORTED


async def test_a_purge_goes_in_batches_beside_calls(stage: Stage) -> None:
    """L2: it deletes everything that is old enough, and no call waits for all of it."""
    fill(stage.rig, count=250)
    step = step_of_age(timedelta(0), "s-new")
    purging = asyncio.create_task(stage.rig.purge(older_than=DAY, batch_size=10))
    answers = await asyncio.gather(*(stage.do(step, timeout_s=30) for _ in range(10)))
    assert await purging == 250
    assert {answer.code for answer in answers} == {OK}
    assert stage.rig.rows() == {"s-new/do/action": "done"}


async def test_two_purges_at_once(stage: Stage) -> None:
    """L2: together they delete everything once."""
    fill(stage.rig, count=100)
    purges = [stage.rig.purge(older_than=DAY, batch_size=7) for _ in range(2)]
    assert sum(await asyncio.gather(*purges)) == 100
    assert stage.rig.rows() == {}


async def test_a_purge_keeps_an_hour_at_least(rig: Rig) -> None:
    """V12: what is called again right now must be known."""
    for older_than, batch_size in ((timedelta(minutes=59), 10), (DAY, 0)):
        with pytest.raises(barrier.BarrierUseError, match="keep rows for an hour at least"):
            await rig.purge(older_than=older_than, batch_size=batch_size)


def fill(rig: Rig, *, count: int) -> None:
    """Rows of steps that are two days old."""
    common = {"ledger": "default", "saga": "s", "step": "do", "direction": "action", "method": "", "state": "null"}
    rows = [{**common, "key": str(number), "step_time": datetime.now(UTC) - 2 * DAY} for number in range(count)]
    with rig.outside.begin() as connection:
        connection.execute(barrier.TABLES.tables["amends_barrier"].insert(), rows)
