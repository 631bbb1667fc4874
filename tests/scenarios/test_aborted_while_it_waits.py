"""A saga that rolls back while a call of it waits for a slot at a full participant."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from amends import Compensated, Retry, Saga
from amends.v1 import saga_pb2
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.inside import announcement, inside
from tests.scenarios.raw import Reply, raw_steps
from tests.scenarios.sagas import Do, Undo
from tests.waiting import eventually, pause

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.scenario

BOUND = timedelta(seconds=20)
LONG = timedelta(seconds=60)
QUICK = Retry(initial_delay=timedelta(milliseconds=20), total_timeout=LONG)


def patient() -> Saga[ScenarioInput, None]:
    """A step that waits long for its participant, and can be undone only with the id of what it has done."""
    saga = Saga("patient", input=ScenarioInput)
    step = saga.step("a", Do(name="a"), timeout=LONG, retry=QUICK)
    step.compensated_by(Undo(effect_id=step.response.effect_id), retry=QUICK)
    return saga


async def test_what_was_never_handed_over_is_dropped(tmp_path: Path) -> None:
    """S4, L1: a call that waits for a slot has not happened, so nothing is owed for it: the saga ends at once, nobody
    has to look after it, and the participant never hears of it.
    """
    saga = patient()
    async with raw_steps({"a": [Reply(delay_s=60)]}) as full, inside(tmp_path, abort_grace_s=0.5) as coordinator:
        request = announcement("full", full.address)
        request.instance.capacity = 1
        await coordinator.registry.RegisterParticipant(request)
        await coordinator.client.start(saga, ScenarioInput(), saga_id="first")
        await eventually(lambda: full.has_seen(1), what="it is full")
        handle = await coordinator.client.start(saga, ScenarioInput(), saga_id="waits")
        while not (await handle.get()).intents:
            await pause()
        await handle.abort("changed my mind")
        ended = await handle.wait(BOUND)
        found = await handle.get()
    assert isinstance(ended, Compensated)
    assert [row.state for row in found.intents] == [saga_pb2.Intent.STATE_DROPPED]
    assert (found.unproven, found.attention_required) == (False, False)
    assert [seen.metadata["amends-saga-id"] for seen in full.seen] == ["first"]
