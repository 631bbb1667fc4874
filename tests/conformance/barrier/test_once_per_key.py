"""What an action's key stands for: one request, carried out once, answered alike for ever."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from tests.conformance.barrier.stage import Held, Stage, Step, staged
from tests.waiting import eventually

OK, ABORTED = grpc.StatusCode.OK, grpc.StatusCode.ABORTED


async def test_the_work_of_a_key_is_done_once(stage: Stage) -> None:
    """S2: a repeated call is answered from the row, with the original response."""
    step = Step(saga_id="s-1")
    first, second = await stage.do(step), await stage.do(step)
    assert (first.code, second.code) == (OK, OK)
    assert first.response == second.response
    assert stage.rig.effects() == ["s-1"]
    assert stage.rig.rows() == {"s-1/do/action": "done"}


async def test_ledgers_have_keys_of_their_own(stage: Stage) -> None:
    """S2: staging and production may share a participant."""
    for ledger in ("production", "staging"):
        assert (await stage.do(Step(saga_id="s-1", ledger=ledger))).code is OK
    assert stage.rig.effects() == ["s-1", "s-1"]


async def test_f06_another_request_under_a_key_is_not_carried_out(stage: Stage) -> None:
    """F06: refused as unknown by a process that has never seen the key, and the first stays as it was."""
    step = Step(saga_id="s-1")
    done = await stage.do(step, name="ten")
    async with staged(stage.rig) as restarted:
        other = await restarted.do(step, name="ninety-nine")
        again = await restarted.do(step, name="ten")
    assert (other.code, other.sealed) == (ABORTED, False)
    assert "stands for another request (timeline.v1.BarrierService/Do)" in other.text
    assert again.response == done.response
    assert stage.rig.effects() == ["s-1"]


async def test_f06_fifty_mixed_calls_at_once(stage: Stage) -> None:
    """F06, S2: two requests under one key, at two processes: one body runs, and every OK carries its response."""
    step = Step(saga_id="s-1")
    async with staged(stage.rig) as other:
        calls = [
            (stage, other)[number % 4 // 2].do(step, name=("ten", "ninety-nine")[number % 2], timeout_s=30)
            for number in range(50)
        ]
        answers = await asyncio.gather(*calls)
    assert {answer.code for answer in answers} == {OK, ABORTED}
    assert len({answer.response for answer in answers if answer.code is OK}) == 1
    assert stage.rig.effects() == ["s-1"]


@pytest.mark.parametrize("processes", [1, 2])
async def test_two_copies_at_once_run_once(stage: Stage, processes: int) -> None:
    """S2: the second waits for the first, in the process or in the database, and gets the original response."""
    step, held = Step(saga_id="s-1"), Held()
    stage.handlers.pause = held
    async with staged(stage.rig) as other:
        first = asyncio.create_task(stage.do(step))
        await held.reached.wait()
        second = asyncio.create_task((stage, other)[processes - 1].do(step))
        if processes == 2 and stage.rig.on_postgres:
            await eventually(stage.rig.somebody_waits_for_a_lock, what="the copy waits for the row")
        held.go_on.set()
        answers = [await first, await second]
    assert [answer.code for answer in answers] == [OK, OK]
    assert answers[0].response == answers[1].response
    assert stage.rig.effects() == ["s-1"]


@pytest.mark.parametrize("processes", [1, 2])
async def test_a_compensation_waits_for_the_action(stage: Stage, processes: int) -> None:
    """S5: it finds the action done, never running: so it undoes it, and leaves no mark beside it."""
    step, held = Step(saga_id="s-1"), Held()
    stage.handlers.pause = held
    async with staged(stage.rig) as other:
        action = asyncio.create_task(stage.do(step))
        await held.reached.wait()
        undo = asyncio.create_task((stage, other)[processes - 1].undo(step))
        if processes == 2 and stage.rig.on_postgres:
            await eventually(stage.rig.somebody_waits_for_a_lock, what="the compensation waits for the action's row")
        held.go_on.set()
        done, undone = await action, await undo
    assert (done.code, undone.code) == (OK, OK)
    assert stage.rig.effects() == ["s-1", f"undone {done.effect_id}"]


async def test_a_copy_gives_up_at_its_deadline(stage: Stage) -> None:
    """S2: it is unknown for the caller; nothing of it is left waiting, and the first call goes on undisturbed."""
    step, held = Step(saga_id="s-1"), Held()
    stage.handlers.pause = held
    async with staged(stage.rig) as other:
        first = asyncio.create_task(stage.do(step))
        await held.reached.wait()
        copy = await other.do(step, timeout_s=0.6)
        if stage.rig.on_postgres and copy.code is grpc.StatusCode.DEADLINE_EXCEEDED:
            copy = await other.do(step, timeout_s=0.6)  # a machine that does other things may let one answer come late
        if stage.rig.on_postgres:
            assert (copy.code, copy.sealed) == (ABORTED, False), copy
            await eventually(lambda: not stage.rig.somebody_waits_for_a_lock(), what="nobody waits any more")
        held.go_on.set()
        assert (await first).code is OK
    assert stage.rig.effects() == ["s-1"]


async def test_a_call_that_is_cancelled_leaves_all_or_nothing(stage: Stage) -> None:
    """S4: a coroutine is ended with its call and rolled back; a thread goes on, and the row answers its copy."""
    step, held = Step(saga_id="s-1"), Held()
    stage.handlers.pause = held
    call = asyncio.create_task(stage.do(step))
    await held.reached.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert stage.rig.effects() == []
    held.go_on.set()
    again = await stage.do(step)
    assert again.code is OK
    assert stage.rig.effects() == ["s-1"]


async def test_a_server_that_stops_while_a_copy_waits(stage: Stage) -> None:
    """S2, L2: whatever is cancelled in its wait for the row leaves no lock behind that others would wait for."""
    step, held = Step(saga_id="s-1"), Held()
    stage.handlers.pause = held
    first = asyncio.create_task(stage.do(step))
    await held.reached.wait()
    async with staged(stage.rig) as other:
        copy = asyncio.create_task(other.do(step, timeout_s=1))
        await eventually(lambda: other.handlers.begun == 1, what="the copy has reached its handler")
    held.go_on.set()
    assert (await first).code is OK
    with pytest.raises(asyncio.CancelledError):
        await copy  # its channel is closed, too
    assert (await stage.do(Step(saga_id="s-2"))).code is OK
    assert stage.rig.effects() == ["s-1", "s-2"]
