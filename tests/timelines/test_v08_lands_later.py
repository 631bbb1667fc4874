"""V8: an abort, or a sibling's refusal, while a call is in flight, which lands later."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from amends.v1 import saga_pb2
from tests.timelines.books import Code
from tests.timelines.network import Fate
from tests.timelines.participant import FAIL, OK, REFUSE, Turn
from tests.timelines.sagas import GUARDED, KEYED, LONG, Timeline, timeline, undoable
from tests.timelines.stage import Stage, staged
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeline

COMPENSATED, COMPENSATING = saga_pb2.Saga.STATE_COMPENSATED, saga_pb2.Saga.STATE_COMPENSATING
GRACE_S = 0.5
SOON_S = 10.0
"""Many times the grace, and half of what the call's own deadline leaves it."""


def definition() -> Timeline:
    """A step, and two side by side after it."""
    saga = timeline("v08")
    first = undoable(saga, "a", GUARDED)
    undoable(saga, "b", GUARDED, after=[first])
    undoable(saga, "c", GUARDED, after=[first])
    return saga


async def begin_to_roll_back(stage: Stage, how: str, until: asyncio.Event) -> None:
    """Have the saga roll back while b is at work, or its answer on its way; c is refused, or the saga aborted."""
    if how == "sibling":
        stage.participant.does("c/action", Turn(before=until, instead=REFUSE.instead))
    await stage.start(definition())
    await eventually(lambda: bool(stage.journal.begun("b")), what="b is in flight")
    if how == "sibling":
        until.set()
    else:
        await eventually(lambda: stage.participant.ever("c") == 1, what="c is done")
        aborted = await stage.desk.abort()
        assert aborted.abort_requested
    await stage.once(lambda saga: saga.state == COMPENSATING)


@pytest.mark.parametrize("how", ["abort", "sibling"])
@pytest.mark.parametrize("landing", [OK, REFUSE, FAIL], ids=["succeeds", "refused", "lost"])
async def test_v08_it_is_waited_for(ledger_url: str, tmp_path: Path, how: str, landing: Turn) -> None:
    """S4, S5, S10: no compensation starts while it is in flight, not even a sibling's; once it has landed it is undone
    if it happened or may have happened, and never called again.
    """
    lands, refused = asyncio.Event(), asyncio.Event()
    async with staged(ledger_url, tmp_path, abort_grace_s=20) as stage:
        stage.participant.does("b/action", Turn(before=lands, instead=landing.instead))
        await begin_to_roll_back(stage, how, refused)
        assert not [entry for entry in stage.journal.read() if entry.direction == "compensation"]
        lands.set()
        saga = await stage.rests()
        assert (saga.state, saga.unproven) == (COMPENSATED, False)
        undone = {entry.step for entry in stage.journal.read() if entry.direction == "compensation"}
        assert undone == {"a"} | ({"b"} if landing is not REFUSE else set()) | ({"c"} if how == "abort" else set())
        assert len(stage.journal.begun("b")) == 1
        assert saga.failure.reason == ("ABORTED" if how == "abort" else "FAILED_PRECONDITION")
        assert [stage.participant.effects(step) for step in "abc"] == [0, 0, 0]


@pytest.mark.parametrize("how", ["abort", "sibling"])
async def test_v08_but_not_for_ever(ledger_url: str, tmp_path: Path, how: str) -> None:
    """S4, S5: after the grace it is cancelled, which is unknown: it is undone, and its request that lands after the
    saga's end is refused by the barrier.
    """
    async with staged(ledger_url, tmp_path, abort_grace_s=GRACE_S) as stage:
        stage.network.does("b/action", Fate.HELD)
        await begin_to_roll_back(stage, how, asyncio.Event())
        begun_s = time.monotonic()
        saga = await stage.rests()
        assert time.monotonic() - begun_s < SOON_S, "it was cancelled, not left to its deadline"
        assert (saga.state, saga.unproven) == (COMPENSATED, False)
        assert len(stage.journal.begun("b", "compensation")) == 1
        assert await stage.network.deliver("b/action") == [Code.FAILED_PRECONDITION]
        assert [stage.participant.effects(step) for step in "abc"] == [0, 0, 0]
        assert stage.participant.ever("b") == 0


async def test_v08_an_abort_while_the_only_call_is_in_flight(ledger_url: str, tmp_path: Path) -> None:
    """S10: accepted, and the answer stays the same when it is asked for again, before and after the end."""
    lands = asyncio.Event()
    saga = timeline("v08-alone")
    undoable(saga, "a", KEYED, retry=LONG)
    async with staged(ledger_url, tmp_path) as stage:
        stage.participant.does("a/action", Turn(before=lands))
        await stage.start(saga)
        await eventually(lambda: bool(stage.journal.begun("a")), what="a is in flight")
        for _ in range(2):
            assert (await stage.desk.abort()).abort_requested
        lands.set()
        found = await stage.rests()
        assert (found.state, found.unproven, found.failure.reason) == (COMPENSATED, False, "ABORTED")
        assert (await stage.desk.abort()).state == COMPENSATED
        assert (stage.participant.ever("a"), stage.participant.effects("a")) == (1, 0)
        assert [entry.verb for entry in await stage.desk.audit()] == ["AbortSaga"]
