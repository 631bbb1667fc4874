"""F09: the last step ends at T, and an abort comes from 5 ms before to 5 ms after it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from amends import PastPointOfNoReturnError
from amends.v1 import saga_pb2
from tests.timelines.participant import Turn
from tests.timelines.sagas import GUARDED, Timeline, timeline, undoable
from tests.timelines.stage import Stage, staged
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from amends import SagaHandle

pytestmark = pytest.mark.scenario

RUNS, AT_ONCE = 100, 10
"""On each database."""

SOON_S = 0.03
"""How long before T both are set up."""


def definition() -> Timeline:
    """Two steps: the point of no return is the commit."""
    saga = timeline("f09")
    undoable(saga, "a", GUARDED)
    undoable(saga, "b", GUARDED)
    return saga


async def accepted(handle: SagaHandle[None]) -> bool:
    """Whether an abort is accepted; refused it is for the one reason that there can be."""
    try:
        await handle.abort("the customer left")
    except PastPointOfNoReturnError:
        return False
    return True


async def race(stage: Stage, saga_id: str, offset_s: float) -> bool:
    """One run: let the last step end, abort so long after it (or before it), and see whether the answer was true."""
    loop, ends, asked = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    stage.participant.turns[f"{saga_id}/b/action"] = [Turn(before=ends)]
    handle = await stage.start(definition(), saga_id)
    await eventually(lambda: stage.participant.worked[f"{saga_id}/b/action"] == 1, what="the last step is at work")
    at_s = loop.time() + SOON_S
    loop.call_at(at_s, ends.set)
    loop.call_at(at_s + offset_s, asked.set)
    await asked.wait()
    was_accepted = await accepted(handle)
    saga = await stage.rests(saga_id)
    wanted = saga_pb2.Saga.STATE_COMPENSATED if was_accepted else saga_pb2.Saga.STATE_COMMITTED
    assert (saga.state, saga.unproven) == (wanted, False), f"accepted: {was_accepted}, {offset_s} s after the end"
    assert await accepted(handle) is was_accepted
    return was_accepted


async def test_f09_the_answer_is_true(ledger_url: str, tmp_path: Path) -> None:
    """S6, S8, S10: accepted and everything undone, or refused and COMMITTED, never both; repeated, it is the same."""
    async with staged(ledger_url, tmp_path) as stage:
        answers: list[bool] = []
        for first in range(0, RUNS, AT_ONCE):
            runs = range(first, first + AT_ONCE)
            answers += await asyncio.gather(*(race(stage, f"s-{n}", (n % 11 - 5) / 1000) for n in runs))
        assert len(answers) == RUNS
