"""V9: HALT and CONTINUE with a dead letter that is settled while older compensations run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from amends import CompensationFailurePolicy, Saga
from amends.v1 import saga_pb2
from tests.timelines.participant import OK, REFUSE, Turn
from tests.timelines.sagas import GUARDED, SHORT, Timeline, undoable
from tests.timelines.stage import Stage, staged
from tests.waiting import eventually
from timeline.v1.timeline_pb2 import TimelineInput

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeline

COMPENSATED, COMPENSATING = saga_pb2.Saga.STATE_COMPENSATED, saga_pb2.Saga.STATE_COMPENSATING
FAILED = saga_pb2.Saga.STATE_COMPENSATION_FAILED
CONTINUE, HALT = CompensationFailurePolicy.CONTINUE, CompensationFailurePolicy.HALT


def definition(policy: CompensationFailurePolicy) -> Timeline:
    """A step, two side by side after it, and one that is refused."""
    saga: Timeline = Saga(f"v09-{policy.name.lower()}", input=TimelineInput, compensation_failure_policy=policy)
    first = undoable(saga, "a", GUARDED)
    sides = [undoable(saga, name, GUARDED, after=[first], undo_retry=SHORT) for name in ("b", "c")]
    undoable(saga, "d", GUARDED, after=sides)
    return saga


async def settle(stage: Stage, how: str) -> None:
    """Do what a person does with the dead letter of b's compensation."""
    letter = await stage.desk.open_letter("b", "compensation")
    if how == "resolved":
        await stage.desk.resolve(letter, "UNDONE_BY_HAND")
    else:
        stage.participant.does("b/compensation", OK)
        await stage.desk.retry(letter)


def undone(stage: Stage) -> list[str]:
    """The steps whose compensations were called, each once, in their order."""
    return list(dict.fromkeys(e.step for e in stage.journal.read() if e.direction == "compensation"))


@pytest.mark.parametrize("how", ["resolved", "retried"])
async def test_v09_continue_goes_on_meanwhile(ledger_url: str, tmp_path: Path, how: str) -> None:
    """S4, S5: the older one runs past the dead letter; settling that while it runs disturbs nothing, the saga is
    COMPENSATED once both are settled and not before, and each is undone once.
    """
    works = asyncio.Event()
    async with staged(ledger_url, tmp_path) as stage:
        stage.participant.does("d/action", REFUSE)
        stage.participant.does("b/compensation", REFUSE)
        stage.participant.does("a/compensation", Turn(before=works))
        await stage.start(definition(CONTINUE))
        await eventually(lambda: bool(stage.journal.begun("a", "compensation")), what="the oldest is being undone")
        waits = await stage.client.get("s")
        assert (waits.state, waits.compensations_owed, waits.attention_required) == (COMPENSATING, 2, True)
        await settle(stage, how)
        assert (await stage.client.get("s")).state == COMPENSATING
        works.set()
        saga = await stage.once(lambda saga: saga.state == COMPENSATED)
        stage.judge(saga)
        assert len(stage.journal.begun("a", "compensation")) == 1
        assert stage.participant.effects("b") == (1 if how == "resolved" else 0)


@pytest.mark.parametrize("how", ["resolved", "retried"])
async def test_v09_halt_holds_the_older_ones(ledger_url: str, tmp_path: Path, how: str) -> None:
    """S4, S5: what had begun ends; nothing older begins before a person has settled the dead letter; and a side by side
    one that still runs then holds it back too.
    """
    works = asyncio.Event()
    async with staged(ledger_url, tmp_path) as stage:
        stage.participant.does("d/action", REFUSE)
        stage.participant.does("b/compensation", REFUSE)
        stage.participant.does("c/compensation", Turn(before=works))
        await stage.start(definition(HALT))
        await stage.desk.open_letter("b", "compensation")
        await settle(stage, how)
        await stage.once(lambda saga: not saga.attention_required)
        assert not stage.journal.begun("a", "compensation")
        works.set()
        saga = await stage.once(lambda saga: saga.state == COMPENSATED)
        stage.judge(saga)
        assert undone(stage)[-1] == "a"


async def test_v09_halt_waits_for_a_person(ledger_url: str, tmp_path: Path) -> None:
    """S4: once everything that had begun is settled the saga is COMPENSATION_FAILED, with what is owed counted."""
    async with staged(ledger_url, tmp_path) as stage:
        stage.participant.does("d/action", REFUSE)
        stage.participant.does("b/compensation", REFUSE)
        await stage.start(definition(HALT))
        saga = await stage.once(lambda saga: saga.state == FAILED)
        stage.judge(saga)
        assert saga.compensations_owed == 2
        assert sorted(undone(stage)) == ["b", "c"]
        await settle(stage, "retried")
        saga = await stage.once(lambda saga: saga.state == COMPENSATED)
        stage.judge(saga)
        assert [stage.participant.effects(step) for step in "abcd"] == [0, 0, 0, 0]
