"""Sagas of one step with a small budget, and how they ended in few words."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from amends import Retry, Saga
from amends.v1 import saga_pb2
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.sagas import Do, Undo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.scenarios.inside import Inside

BOUND = timedelta(seconds=30)
SOON = timedelta(milliseconds=10)
SHORT = Retry(
    initial_delay=SOON,
    maximum_delay=timedelta(milliseconds=100),
    total_timeout=timedelta(milliseconds=800),
    maximum_refusal_count=2,
)
"""Two refusals, or less than a second."""

ATTEMPT = timedelta(seconds=1)


def one_step(name: str, *, participant: str = "raw", refused_after: bool = False) -> Saga[ScenarioInput, None]:
    """A saga of one step with a small budget; with `refused_after` a second one, "no", follows it."""
    saga = Saga(f"saga-{name}".replace("_", "-"), input=ScenarioInput, timeout=timedelta(seconds=20))
    step = saga.step(name, Do(name=name), timeout=ATTEMPT, retry=SHORT, participant=participant)
    step.compensated_by(Undo(name=name), by_key=True, timeout=ATTEMPT, retry=SHORT)
    if refused_after:
        last = saga.step("no", Do(name="no"), timeout=ATTEMPT, retry=SHORT, participant=participant)
        last.compensated_by(Undo(name="no"), by_key=True)
    return saga


async def ends(coordinator: Inside, sagas: Mapping[str, Saga[ScenarioInput, None]]) -> dict[str, saga_pb2.Saga]:
    """Start one saga of each definition, all at once, and how each stands at its end."""

    async def end(name: str, saga: Saga[ScenarioInput, None]) -> saga_pb2.Saga:
        handle = await coordinator.client.start(saga, ScenarioInput(), saga_id=name.replace("_", "-"))
        await handle.wait(BOUND)
        return await handle.get()

    found = await asyncio.gather(*(end(name, saga) for name, saga in sagas.items()))
    return dict(zip(sagas, found, strict=True))


def short(saga: saga_pb2.Saga) -> tuple[str, str, str]:
    """The saga's state, and what the first step's action and compensation came to ("" where there is none)."""
    intents = {intent.direction: intent for intent in saga.intents if intent.step == saga.intents[0].step}
    states = [
        saga_pb2.Intent.State.Name(intents[side].state).removeprefix("STATE_") if side in intents else ""
        for side in (saga_pb2.DIRECTION_ACTION, saga_pb2.DIRECTION_COMPENSATION)
    ]
    return (saga_pb2.Saga.State.Name(saga.state).removeprefix("STATE_"), states[0], states[1])


def outcomes(saga: saga_pb2.Saga) -> set[str]:
    """What the attempts of the first intent proved."""
    return {saga_pb2.Outcome.Name(attempt.outcome).removeprefix("OUTCOME_") for attempt in saga.intents[0].attempts}


def reasons(saga: saga_pb2.Saga) -> list[str]:
    """Why dead letters are open."""
    return [saga_pb2.DeadLetter.Reason.Name(each.reason).removeprefix("REASON_") for each in saga.dead_letters]
