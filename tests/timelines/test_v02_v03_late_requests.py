"""V2 and V3: the lookup says NOT_FOUND while the delayed request is on its way, and then it arrives."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from amends.v1 import saga_pb2
from tests.timelines.books import Code
from tests.timelines.network import Fate
from tests.timelines.participant import Turn
from tests.timelines.sagas import ATTEMPT, GUARDED, KEYED, SHORT, SILENT, Promise, Timeline, timeline, undoable
from tests.timelines.stage import staged
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeline

COMPENSATED, RUNNING = saga_pb2.Saga.STATE_COMPENSATED, saga_pb2.Saga.STATE_RUNNING


def undoable_late(promise: Promise) -> Timeline:
    """A step, and one whose first request is late."""
    saga = timeline("v02")
    undoable(saga, "a", promise)
    undoable(saga, "b", promise, retry=SHORT, findable=True)
    return saga


def running_late() -> Timeline:
    """A step, and one that is still at work when its caller's time is over."""
    saga = timeline("v02-runs")
    undoable(saga, "a", GUARDED)
    undoable(saga, "b", GUARDED, timeout=SILENT, retry=SHORT)
    return saga


def pivot_late(promise: Promise) -> Timeline:
    """A step, and a pivot whose requests are late."""
    saga = timeline("v03")
    undoable(saga, "a", promise)
    pivot = saga.pivot("p", promise.do(name="p"), timeout=ATTEMPT, retry=SHORT)
    pivot.looked_up_by(promise.find(name="p"), timeout=ATTEMPT, retry=SHORT)
    return saga


async def test_v02_an_unsealed_not_found_proves_nothing(ledger_url: str, tmp_path: Path) -> None:
    """S4: the step is compensated although the lookup found nothing; the barrier's mark then refuses the late request,
    so that nothing of it stands.
    """
    async with staged(ledger_url, tmp_path) as stage:
        stage.participant.barrier.seals = False
        stage.network.does("b/action", Fate.LATE)
        await stage.start(undoable_late(GUARDED))
        saga = await stage.rests()
        assert saga.state == COMPENSATED
        assert not saga.unproven
        assert [entry.step for entry in stage.journal.begun("b", "lookup")] == ["b"]
        assert len(stage.journal.begun("b", "compensation")) == 1
        assert set(await stage.network.deliver("b/action")) == {Code.FAILED_PRECONDITION}
        assert (stage.participant.ever("b"), stage.participant.effects("a")) == (0, 0)


async def test_v02_a_sealed_not_found_closes_the_door(ledger_url: str, tmp_path: Path) -> None:
    """S4: the lookup itself leaves the mark: no undo is needed, and the late request is refused."""
    async with staged(ledger_url, tmp_path) as stage:
        stage.network.does("b/action", Fate.LATE)
        await stage.start(undoable_late(GUARDED))
        saga = await stage.rests()
        assert (saga.state, saga.unproven) == (COMPENSATED, False)
        assert not stage.journal.begun("b", "compensation")
        assert set(await stage.network.deliver("b/action")) == {Code.FAILED_PRECONDITION}
        assert stage.participant.ever("b") == 0


async def test_v02_without_a_barrier_the_end_is_unproven(ledger_url: str, tmp_path: Path) -> None:
    """S4: a participant that only knows keys lets the late request stand; the saga never claimed a proof."""
    async with staged(ledger_url, tmp_path) as stage:
        stage.network.does("b/action", Fate.LATE)
        await stage.start(undoable_late(KEYED))
        saga = await stage.rests()
        assert (saga.state, saga.unproven) == (COMPENSATED, True)
        assert Code.OK in await stage.network.deliver("b/action")
        assert stage.participant.effects("b") == 1
        stage.judge(await stage.client.get("s"))


@pytest.mark.parametrize("promise", [GUARDED, KEYED], ids=["barrier", "key"])
async def test_v03_a_pivot_is_not_rolled_back_on_an_unsealed_not_found(
    ledger_url: str, tmp_path: Path, promise: Promise
) -> None:
    """S6: the pivot's requests arrive after its lookup found nothing: it happened, and nothing before it was undone."""
    async with staged(ledger_url, tmp_path) as stage:
        stage.participant.barrier.seals = False
        stage.network.does("p/action", Fate.LATE)
        await stage.start(pivot_late(promise))
        saga = await stage.rests()
        assert saga.state == RUNNING
        assert saga.attention_required
        assert Code.OK in await stage.network.deliver("p/action")
        stage.judge(await stage.client.get("s"))
        assert (stage.participant.effects("a"), stage.participant.effects("p")) == (1, 1)


async def test_v03_a_sealed_not_found_proves_that_the_pivot_never_will_happen(ledger_url: str, tmp_path: Path) -> None:
    """S6: the point of no return is cleared by the proof, and the late requests are refused."""
    async with staged(ledger_url, tmp_path) as stage:
        stage.network.does("p/action", Fate.LATE)
        await stage.start(pivot_late(GUARDED))
        saga = await stage.rests()
        assert (saga.state, saga.unproven, saga.point_of_no_return_passed) == (COMPENSATED, False, False)
        assert set(await stage.network.deliver("p/action")) == {Code.FAILED_PRECONDITION}
        assert (stage.participant.ever("p"), stage.participant.effects("a")) == (0, 0)


async def test_v02_a_copy_that_still_runs_is_waited_for(ledger_url: str, tmp_path: Path) -> None:
    """S4, S5: while the late copy is at work the compensation is answered ABORTED and repeated, and undoes it then."""
    async with staged(ledger_url, tmp_path) as stage:
        works = asyncio.Event()
        stage.participant.does("b/action", Turn(before=works))
        stage.network.does("b/action", Fate.UNHEARD)
        await stage.start(running_late())
        await eventually(lambda: len(stage.journal.begun("b", "compensation")) > 1, what="it is asked again")
        works.set()
        saga = await stage.rests()
        assert (saga.state, saga.unproven) == (COMPENSATED, False)
        assert (stage.participant.ever("b"), stage.participant.effects("b")) == (1, 0)
