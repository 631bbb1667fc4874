"""F08: three steps, the third refused; the compensation of the second fails below, then above its budget."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from amends import CompensationFailurePolicy, Retry, Saga
from amends.v1 import saga_pb2
from tests.timelines.databases import sqlite_ledger
from tests.timelines.participant import FAIL, OK, REFUSE
from tests.timelines.sagas import GUARDED, SHORT, Timeline, undoable
from tests.timelines.stage import Stage, staged
from timeline.v1.timeline_pb2 import TimelineInput

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.scenario

CONTINUE, HALT = CompensationFailurePolicy.CONTINUE, CompensationFailurePolicy.HALT
COMPENSATED, FAILED = saga_pb2.Saga.STATE_COMPENSATED, saga_pb2.Saga.STATE_COMPENSATION_FAILED
PATIENT = Retry(
    initial_delay=timedelta(milliseconds=20),
    maximum_delay=timedelta(milliseconds=160),
    total_timeout=timedelta(minutes=1),
)
LOWER_BOUNDS_S = (0.010, 0.020, 0.040, 0.080, 0.080, 0.080)
"""Half of each delay is fixed: it doubles up to the cap."""

POLICIES = pytest.mark.parametrize("policy", [CONTINUE, HALT], ids=lambda policy: policy.name.lower())


def definition(policy: CompensationFailurePolicy, retry: Retry) -> Timeline:
    """Three steps; `retry` is the budget of the second one's undo."""
    saga: Timeline = Saga(f"f08-{policy.name.lower()}", input=TimelineInput, compensation_failure_policy=policy)
    undoable(saga, "a", GUARDED)
    undoable(saga, "b", GUARDED, undo_retry=retry)
    undoable(saga, "c", GUARDED)
    return saga


def gaps_s(stage: Stage, step: str) -> list[float]:
    """How long after the end of each attempt to undo a step the next one began."""
    calls = [e for e in stage.journal.read() if (e.step, e.direction) == (step, "compensation")]
    ends = [entry.time_s for entry in calls if entry.event == "end"]
    begins = [entry.time_s for entry in calls if entry.event == "begin"]
    return [begin - end for end, begin in zip(ends, begins[1:], strict=False)]


@POLICIES
async def test_f08_below_its_budget_it_is_repeated(tmp_path: Path, policy: CompensationFailurePolicy) -> None:
    """L1, S5: with gaps whose lower bound doubles up to the cap; then the saga is COMPENSATED without any help."""
    async with staged(sqlite_ledger(tmp_path), tmp_path) as stage:
        stage.participant.does("c/action", REFUSE)
        stage.participant.does("b/compensation", *(FAIL for _ in LOWER_BOUNDS_S), OK)
        await stage.start(definition(policy, PATIENT))
        saga = await stage.rests()
        assert saga.state == COMPENSATED
        gaps = gaps_s(stage, "b")
        assert all(gap >= low for gap, low in zip(gaps, LOWER_BOUNDS_S, strict=True)), gaps
        assert [entry.step for entry in stage.journal.effects("compensation")] == ["b", "a"]


async def test_f08_above_its_budget_continue_goes_on(tmp_path: Path) -> None:
    """S4, L1: a dead letter at once, the older one is undone; COMPENSATED only once a person had it retried."""
    async with staged(sqlite_ledger(tmp_path), tmp_path) as stage:
        stage.participant.does("c/action", REFUSE)
        stage.participant.does("b/compensation", FAIL)
        await stage.start(definition(CONTINUE, SHORT))
        saga = await stage.once(lambda saga: saga.state == FAILED)
        stage.judge(saga)
        assert [(each.step, each.reason) for each in saga.dead_letters] == [
            ("b", saga_pb2.DeadLetter.REASON_BUDGET_SPENT)
        ]
        assert (saga.compensations_owed, stage.participant.effects("a"), stage.participant.effects("b")) == (1, 0, 1)
        stage.participant.does("b/compensation", OK)
        await stage.desk.retry(await stage.desk.open_letter("b", "compensation"))
        stage.judge(await stage.once(lambda saga: saga.state == COMPENSATED))
        assert stage.participant.effects("b") == 0


async def test_f08_above_its_budget_halt_holds_the_first(tmp_path: Path) -> None:
    """S4, S5: the oldest isn't touched until an operator has settled the second."""
    async with staged(sqlite_ledger(tmp_path), tmp_path) as stage:
        stage.participant.does("c/action", REFUSE)
        stage.participant.does("b/compensation", FAIL)
        await stage.start(definition(HALT, SHORT))
        saga = await stage.once(lambda saga: saga.state == FAILED)
        stage.judge(saga)
        assert (saga.compensations_owed, stage.participant.effects("a")) == (2, 1)
        assert not stage.journal.begun("a", "compensation")
        await stage.desk.resolve(await stage.desk.open_letter("b", "compensation"), "UNDONE_BY_HAND")
        stage.judge(await stage.once(lambda saga: saga.state == COMPENSATED))
        assert (stage.participant.effects("a"), stage.participant.effects("b")) == (0, 1)
