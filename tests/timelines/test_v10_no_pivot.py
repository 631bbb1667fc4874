"""V10: no pivot, a retriable step, and an abort."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest

from amends.v1 import saga_pb2
from tests.integration.api.refusals import refused
from tests.timelines.participant import Turn
from tests.timelines.sagas import ATTEMPT, GUARDED, LONG, Timeline, timeline, undoable
from tests.timelines.stage import staged
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeline

PAST_POINT = (grpc.StatusCode.FAILED_PRECONDITION, "PAST_POINT_OF_NO_RETURN")


def definition() -> Timeline:
    """A step, and a retriable one: with its intent the saga passes the point of no return."""
    saga = timeline("v10")
    undoable(saga, "a", GUARDED)
    saga.retriable("r", GUARDED.do(name="r"), timeout=ATTEMPT, retry=LONG)
    return saga


async def test_v10_before_the_retriable_step_it_is_accepted(ledger_url: str, tmp_path: Path) -> None:
    """S6, S10: the retriable step is never called, the one before it is undone."""
    works = asyncio.Event()
    async with staged(ledger_url, tmp_path) as stage:
        stage.participant.does("a/action", Turn(before=works))
        await stage.start(definition())
        await eventually(lambda: bool(stage.journal.begun("a")), what="a is in flight")
        aborted = await stage.desk.abort()
        assert (aborted.abort_requested, aborted.point_of_no_return_passed) == (True, False)
        works.set()
        assert (await stage.rests()).state == saga_pb2.Saga.STATE_COMPENSATED
        assert not stage.journal.begun("r")
        assert (stage.participant.ever("a"), stage.participant.effects("a")) == (1, 0)


async def test_v10_past_it_it_is_refused(ledger_url: str, tmp_path: Path) -> None:
    """S6, S10: from the retriable step's intent on nothing is changed by it, however often it is asked for, and the
    saga commits.
    """
    works = asyncio.Event()
    async with staged(ledger_url, tmp_path) as stage:
        stage.participant.does("r/action", Turn(before=works))
        await stage.start(definition())
        await eventually(lambda: bool(stage.journal.begun("r")), what="r is in flight")
        before = await stage.client.get("s")
        for _ in range(2):
            refusal = await refused(stage.desk.abort())
            assert (refusal.code, refusal.reason) == PAST_POINT
        assert await stage.client.get("s") == before
        works.set()
        assert (await stage.rests()).state == saga_pb2.Saga.STATE_COMMITTED
        refusal = await refused(stage.desk.abort())
        assert (refusal.code, refusal.reason) == PAST_POINT
        assert not await stage.desk.audit()
        assert (stage.participant.effects("a"), stage.participant.effects("r")) == (1, 1)
