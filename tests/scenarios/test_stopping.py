"""A coordinator that is told to stop lets go at once of what only waits, and says what it can't reach."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from amends import Committed, SagaClient
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.sagas import scene, steps

pytestmark = pytest.mark.scenario

GRACE_S = 30.0


async def test_a_saga_that_only_waits_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    """L1: nothing is under way, so nothing is waited for; the next start goes on with the saga."""
    async with scene(tmp_path, AMENDS_STOP_GRACE_S=str(GRACE_S)) as stage:
        saga = steps("a")
        async with SagaClient(stage.coordinator.address) as client:
            assert stage.participant is not None
            await stage.participant.stop()
            await client.start(saga, ScenarioInput(), saga_id="waits")
            await stage.saga_once(client, "waits", lambda saga: saga.intents[0].attempt_count >= 2)
        began_s = time.monotonic()
        assert await stage.coordinator.stop() == 0
        assert time.monotonic() - began_s < GRACE_S / 3
        assert stage.coordinator.log_text().count("call not sent") == 1, "told once a minute, not for each attempt"
        await stage.coordinator.start()
        await stage.start_participant()
        async with SagaClient(stage.coordinator.address) as client:
            assert isinstance(await client.handle(saga, "waits").wait(), Committed)
