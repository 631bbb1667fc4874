"""V12: the participant purged its marks, and then a dead letter is retried."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import grpc
import pytest

from amends.v1 import saga_pb2
from tests.scenarios.desk import intent_of
from tests.timelines.network import Fate
from tests.timelines.participant import MISSING, REFUSE
from tests.timelines.sagas import ATTEMPT, GUARDED, KEYED, SHORT, Timeline, timeline, undoable
from tests.timelines.stage import staged
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeline

WINDOW = timedelta(milliseconds=600)
"""How long the participant remembers keys: longer than the budgets take."""

EXPIRED = (grpc.StatusCode.FAILED_PRECONDITION, "KEY_EXPIRED")


def undo_forgotten() -> Timeline:
    """A step whose undo is done, unheard, again and again; and one that is refused."""
    saga = timeline("v12")
    step = saga.step("a", KEYED.do(name="a"), timeout=ATTEMPT)
    step.compensated_by(KEYED.undo(name="a"), by_key=True, timeout=ATTEMPT, retry=SHORT, idempotency_window=WINDOW)
    undoable(saga, "b", KEYED)
    return saga


def pivot_forgotten(*, findable: bool) -> Timeline:
    """A step, and a pivot whose answers are lost."""
    saga = timeline(f"v12-pivot-{int(findable)}")
    undoable(saga, "a", GUARDED)
    pivot = saga.pivot("p", GUARDED.do(name="p"), timeout=ATTEMPT, retry=SHORT, idempotency_window=WINDOW)
    if findable:
        pivot.looked_up_by(GUARDED.find(name="p"), timeout=ATTEMPT, retry=SHORT)
    return saga


async def once_the_window_is_over(saga: saga_pb2.Saga, step: str, direction: str) -> None:
    """Return when the participant may have forgotten the key of a call."""
    end = intent_of(saga, step, direction).create_time.ToDatetime(tzinfo=UTC) + WINDOW
    await eventually(lambda: datetime.now(tz=UTC) > end, what="the window is over")


async def test_v12_a_compensation_is_not_repeated_with_a_forgotten_key(ledger_url: str, tmp_path: Path) -> None:
    """S2, S4: it may have been carried out, and repeated it could be carried out twice: KEY_EXPIRED, nothing is called,
    and it stays for a person; forced, it is called, and the saga says that its end is unproven.
    """
    async with staged(ledger_url, tmp_path) as stage:
        stage.participant.does("b/action", REFUSE)
        stage.network.does("a/compensation", Fate.LOST)
        await stage.start(undo_forgotten())
        saga = await stage.rests()
        assert saga.state == saga_pb2.Saga.STATE_COMPENSATION_FAILED
        called = len(stage.journal.begun("a", "compensation"))
        assert stage.participant.effects("a") == 0
        await once_the_window_is_over(saga, "a", "compensation")
        stage.participant.key.forget()
        letter = await stage.desk.open_letter("a", "compensation")
        assert await stage.desk.why_not_retry(letter) == EXPIRED
        assert len(stage.journal.begun("a", "compensation")) == called
        assert await stage.client.get("s") == saga
        stage.network.does("a/compensation", Fate.PASS)
        stage.participant.does("a/compensation", MISSING)
        await stage.desk.retry(letter, forced=True)
        await eventually(lambda: len(stage.journal.begun("a", "compensation")) > called, what="it is called again")
        saga = await stage.rests()
        assert saga.unproven


async def test_v12_a_pivot_is_not_repeated_with_a_forgotten_key(ledger_url: str, tmp_path: Path) -> None:
    """S6: what was done once is not done twice; a person who knows that it happened says so."""
    async with staged(ledger_url, tmp_path) as stage:
        stage.network.does("p/action", Fate.LOST)
        await stage.start(pivot_forgotten(findable=False))
        saga = await stage.rests()
        called = len(stage.journal.begun("p"))
        await once_the_window_is_over(saga, "p", "action")
        stage.participant.barrier.forget()
        letter = await stage.desk.open_letter("p")
        assert await stage.desk.why_not_retry(letter) == EXPIRED
        await stage.desk.resolve(letter, "HAPPENED")
        saga = await stage.once(lambda saga: saga.state == saga_pb2.Saga.STATE_COMMITTED)
        stage.judge(saga)
        assert (len(stage.journal.begun("p")), stage.participant.ever("p")) == (called, 1)


async def test_v12_with_a_lookup_that_is_asked_instead(ledger_url: str, tmp_path: Path) -> None:
    """S6: a retry after the window repeats the lookup, never the action."""
    async with staged(ledger_url, tmp_path) as stage:
        stage.network.does("p/action", Fate.LOST)
        stage.network.does("p/lookup", Fate.DROPPED)
        await stage.start(pivot_forgotten(findable=True))
        saga = await stage.rests()
        called = len(stage.journal.begun("p"))
        await once_the_window_is_over(saga, "p", "action")
        stage.network.does("p/lookup", Fate.PASS)
        await stage.desk.retry(await stage.desk.open_letter("p"))
        saga = await stage.once(lambda saga: saga.state == saga_pb2.Saga.STATE_COMMITTED)
        stage.judge(saga)
        assert (len(stage.journal.begun("p")), stage.participant.ever("p")) == (called, 1)
