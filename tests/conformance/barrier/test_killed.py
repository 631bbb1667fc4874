"""A participant that is killed in its commit: all of a call is true afterwards, or nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from tests.conformance.barrier.stage import Rig, Step, called, staged
from tests.scenarios.processes import Process
from tests.waiting import eventually

pytestmark = pytest.mark.crash

STEP = Step(saga_id="s-1")


@pytest.mark.parametrize(
    ("rig", "point"),
    [
        ("sqlite-async", "commits"),
        ("sqlite-plain", "committed"),
        ("postgresql-async", "committed"),
        ("postgresql-plain", "commits"),
    ],
    indirect=["rig"],
)
async def test_f01_killed_between_the_return_and_the_answer(rig: Rig, point: str, tmp_path: Path) -> None:
    """F01, S2: the next process does the work, or answers what the killed one had made true: one effect in the end."""
    reached = tmp_path / "reached"
    kind = "plain" if rig.plain else "async"
    url = rig.outside.url.render_as_string(hide_password=False)
    arguments = ["tests.conformance.barrier.process", url, kind, point, str(reached)]
    process = Process(arguments, {}, tmp_path / "process.log")
    await process.start()
    async with grpc.aio.insecure_channel(process.address) as channel:
        unanswered = asyncio.create_task(called(rig, channel).do(STEP, timeout_s=60))
        await eventually(reached.exists, what="the process stands still in its commit", bound_s=30)
        await process.kill()
        assert (await unanswered).code is grpc.StatusCode.UNAVAILABLE
    left = rig.effects()
    assert (left, rig.rows()) == ((["s-1"], {"s-1/do/action": "done"}) if point == "committed" else ([], {}))
    async with staged(rig) as stage:
        again = await stage.do(STEP, timeout_s=60)
    assert again.code is grpc.StatusCode.OK, again
    assert rig.effects() == ["s-1"]
