"""F17: a hundred sagas whose participant sleeps, and whoever else wants something meanwhile, on both databases."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from statistics import median
from typing import TYPE_CHECKING

import pytest

from amends.v1 import saga_pb2
from amends.v1 import saga_service_pb2 as pb
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.inside import Inside, inside
from tests.scenarios.raw import Reply, raw_steps
from tests.scenarios.sagas import steps
from tests.timelines.stage import BOUND
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

pytestmark = [pytest.mark.scenario, pytest.mark.slow]

COUNT = 100
ATTEMPT = timedelta(seconds=100)
"""Nobody gives up: the participant sleeps until it is woken."""

PROMISED_S = 0.5
SLACK = 5
"""A machine that does other things may keep single answers waiting."""


async def took(request: Awaitable[object]) -> float:
    """How long an answer takes, in seconds."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    await request
    return loop.time() - begun_s


async def asked_meanwhile(coordinator: Inside, known: saga_pb2.Saga) -> list[float]:
    """How long answers take: a start, a saga, a list, ten times, all three at once."""
    times: list[float] = []
    for number in range(10):
        start = pb.StartSagaRequest(saga_id=f"late-{number}", definition_name=known.definition_name, input=known.input)
        times += await asyncio.gather(
            took(coordinator.sagas.StartSaga(start)),
            took(coordinator.sagas.GetSaga(pb.GetSagaRequest(saga_id=f"s-{number}"))),
            took(coordinator.sagas.ListSagas(pb.ListSagasRequest(page_size=10))),
        )
    return times


async def test_f17_a_participant_that_sleeps_holds_up_nobody(tmp_path: Path, ledger_url: str) -> None:
    """F17, L2: all hundred calls are under way together, no connection of the ledger is held by them, and reads and
    starts are answered at once.
    """
    woken = asyncio.Event()
    plan = {"a": [Reply(until=woken)]}
    async with raw_steps(plan) as participant, inside(tmp_path, ledger_url=ledger_url) as coordinator:
        await coordinator.announce("raw", participant.address)
        saga = steps("a", attempt_timeout=ATTEMPT)
        starts = (coordinator.client.start(saga, ScenarioInput(), saga_id=f"s-{n}") for n in range(COUNT))
        handles = await asyncio.gather(*starts)
        await eventually(lambda: participant.has_seen(COUNT), what="all calls are under way", bound_s=30)
        known = await handles[0].get()
        assert known.state == saga_pb2.Saga.STATE_RUNNING, "no call has ended yet"
        times = await asked_meanwhile(coordinator, known)
        assert median(times) < PROMISED_S
        assert max(times) < PROMISED_S * SLACK
        states = [saga.state async for saga in coordinator.client.list()]
        assert states == [saga_pb2.Saga.STATE_RUNNING] * (COUNT + 10)
        woken.set()
        await asyncio.gather(*(handle.wait(BOUND) for handle in handles))
        assert len(participant.calls("a/action")) == COUNT + 10
