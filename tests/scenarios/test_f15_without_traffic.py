"""F15: kill -9 with 20 sagas half done; restart; no request at all."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from amends import SagaClient
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.oracle import judge
from tests.scenarios.sagas import scene, steps
from tests.waiting import eventually

pytestmark = [pytest.mark.scenario, pytest.mark.crash]

COUNT = 20


async def test_f15_all_twenty_end(tmp_path: Path) -> None:
    """L1: every saga ends without traffic and without help."""

    def ended() -> int:
        with closing(sqlite3.connect(f"file:{tmp_path / 'ledger.db'}?mode=ro", uri=True)) as connection:
            rows = connection.execute("SELECT count(*) FROM saga WHERE state IN ('COMMITTED', 'COMPENSATED')")
            return int(rows.fetchone()[0])

    async with scene(tmp_path) as stage:
        stage.script(b=["hold", "ok"], late=["hold", "reject"])
        good = steps("a", "b", "c", attempt_timeout=timedelta(seconds=30))
        bad = steps("a", "late", attempt_timeout=timedelta(seconds=30), by_key=True)
        async with SagaClient(stage.coordinator.address) as client:
            for number in range(COUNT):
                await client.start(good if number % 2 else bad, ScenarioInput(), saga_id=f"f15-{number}")
            await eventually(
                lambda: len(stage.journal.effects()) == 2 * COUNT, what="every second step took effect", bound_s=60
            )
        await stage.coordinator.kill()
        await stage.coordinator.start()
        await eventually(lambda: ended() == COUNT, what="all sagas ended", bound_s=60)
        async with SagaClient(stage.coordinator.address) as client:
            for number in range(COUNT):
                judge(await client.get(f"f15-{number}"), stage.journal)
