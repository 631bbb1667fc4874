"""F09, F10: an abort that comes while a saga ends, or while it waits: the answer is true, and what it says happens."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from amends import Committed, Compensated, PastPointOfNoReturnError, Retry
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.inside import inside
from tests.scenarios.raw import Reply, raw_steps
from tests.scenarios.sagas import steps

if TYPE_CHECKING:
    from pathlib import Path

    from amends import SagaHandle
    from scenario.v1.scenario_pb2 import ScenarioOutput

pytestmark = pytest.mark.scenario

RUNS = 100
AT_ONCE = 10
LAST_STEP_S = 0.02
BOUND = timedelta(seconds=60)


async def moment(delay_s: float) -> None:
    """The moment that long from now: what is tested is when an abort comes."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), delay_s)


async def aborted(handle: SagaHandle[ScenarioOutput]) -> bool:
    """Whether an abort is accepted; repeated, the answer is the same (S10)."""
    answers: list[bool] = []
    for _ in range(2):
        try:
            await handle.abort("just before the end")
            answers.append(True)
        except PastPointOfNoReturnError:
            answers.append(False)
    assert answers[0] == answers[1]
    return answers[0]


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
async def test_f09_an_abort_while_the_last_step_ends(
    database: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """F09, S10: accepted and everything undone, or refused and COMMITTED; never both, in 100 runs on each database."""
    given = {"ledger_url": request.getfixturevalue("postgres_ledger")} if database == "postgresql" else {}
    slow = {"b": [Reply(delay_s=LAST_STEP_S)]}
    async with raw_steps(slow) as raw, inside(tmp_path, **given) as coordinator:
        await coordinator.announce("raw", raw.address)
        saga, busy = steps("a", "b"), asyncio.Semaphore(AT_ONCE)

        async def run(number: int) -> bool:
            async with busy:
                handle = await coordinator.client.start(saga, ScenarioInput(), saga_id=f"s-{number}")
                await moment(LAST_STEP_S * number / RUNS * 3)
                accepted = await aborted(handle)
                end = await handle.wait(BOUND)
            assert isinstance(end, Compensated if accepted else Committed)
            return accepted

        accepted = await asyncio.gather(*map(run, range(RUNS)))
        undone = {
            (seen.metadata["amends-saga-id"], seen.metadata["amends-step"])
            for seen in raw.seen
            if seen.side.endswith("/compensation")
        }
        done = {
            (seen.metadata["amends-saga-id"], seen.metadata["amends-step"])
            for seen in raw.seen
            if seen.side.endswith("/action")
        }
    aborted_ids = {f"s-{number}" for number, each in enumerate(accepted) if each}
    assert undone == {each for each in done if each[0] in aborted_ids}
    assert aborted_ids, "no abort came in time"


async def test_f10_an_abort_while_a_step_waits_for_its_next_attempt(tmp_path: Path) -> None:
    """F10: compensation starts within about a second, no attempt afterwards, it may have happened."""
    patient = Retry(
        initial_delay=timedelta(seconds=60), maximum_delay=timedelta(seconds=60), total_timeout=timedelta(hours=1)
    )
    async with raw_steps({"b": [Reply(delay_s=0.5)]}) as raw, inside(tmp_path) as coordinator:
        await coordinator.announce("raw", raw.address)
        saga = steps("a", "b", attempt_timeout=timedelta(milliseconds=100), retry=patient, by_key=True)
        handle = await coordinator.client.start(saga, ScenarioInput(), saga_id="s")
        while not any(each.HasField("next_attempt_time") for each in (await handle.get()).intents):
            await moment(0.01)
        begun = asyncio.get_running_loop().time()
        await handle.abort("not wanted any more")
        end = await handle.wait(BOUND)
        assert asyncio.get_running_loop().time() - begun < 5
        assert isinstance(end, Compensated)
        assert end.reason == "ABORTED"
        assert [seen.side for seen in raw.seen] == ["a/action", "b/action", "b/compensation", "a/compensation"]
