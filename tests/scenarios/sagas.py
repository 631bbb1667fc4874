"""Saga definitions of the scenarios, and the scene on which they are played."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

from amends import Retry, Saga, SagaClient, method
from amends.v1 import saga_pb2
from scenario.v1.scenario_pb2 import (
    DoRequest,
    DoResponse,
    ScenarioInput,
    ScenarioOutput,
    UndoRequest,
    UndoResponse,
)
from scenario.v1.scenario_pb2_grpc import StepServiceServicer
from tests.scenarios.journal import Journal
from tests.scenarios.processes import Process, coordinator, participant
from tests.waiting import pause

Do = method(StepServiceServicer.Do, DoRequest, DoResponse)
Undo = method(StepServiceServicer.Undo, UndoRequest, UndoResponse)

ScenarioSaga: TypeAlias = Saga[ScenarioInput, ScenarioOutput]

QUICK = Retry(
    initial_delay=timedelta(milliseconds=20),
    maximum_delay=timedelta(milliseconds=200),
    total_timeout=timedelta(seconds=20),
)
"""Repeats soon and for long enough to live through a restart on a busy machine."""


def steps(
    *names: str,
    attempt_timeout: timedelta = timedelta(seconds=2),
    retry: Retry = QUICK,
    undo_retry: Retry = QUICK,
    by_key: bool = False,
    timeout: timedelta = timedelta(minutes=5),
) -> ScenarioSaga:
    """A saga of compensatable steps, one after the other. With `by_key` an undo finds its work by the action's key."""
    saga: ScenarioSaga = Saga(
        "-".join(("scenario", *names)), input=ScenarioInput, output=ScenarioOutput, timeout=timeout
    )
    last = None
    for name in names:
        last = saga.step(name, Do(name=name, amount=saga.input.amount), timeout=attempt_timeout, retry=retry)
        undo = Undo(name=name) if by_key else Undo(effect_id=last.response.effect_id, name=name)
        last.compensated_by(undo, by_key=by_key, timeout=attempt_timeout, retry=undo_retry)
    if last is None:
        raise AssertionError("a saga has steps")
    saga.output(ScenarioOutput)(effect_id=last.response.effect_id)
    return saga


class Scene:
    """A coordinator and a scripted participant as processes, with all they write in one folder."""

    def __init__(self, data: Path, **settings: str) -> None:
        self.data = data
        self.journal = Journal(data / "journal.jsonl")
        self.coordinator = coordinator(data, **settings)
        self.participant: Process | None = None

    def script(self, **behaviours: list[str]) -> None:
        """Say what the participant does: `script(reserve=["hold", "ok"], undo_reserve=["reject"])`."""
        keyed = {
            f"{name.removeprefix('undo_')}/{'compensation' if name.startswith('undo_') else 'action'}": list_
            for name, list_ in behaviours.items()
        }
        (self.data / "script.json").write_text(json.dumps(keyed))

    async def start(self) -> None:
        """Start both."""
        await self.coordinator.start()
        await self.start_participant()

    async def start_participant(self) -> None:
        """Start the participant, again on the port that it had."""
        if self.participant is None:
            self.participant = participant(self.data, self.coordinator.address)
        await self.participant.start()

    async def saga_once(
        self, client: SagaClient, saga_id: str, condition: Callable[[saga_pb2.Saga], bool], bound_s: float = 30.0
    ) -> saga_pb2.Saga:
        """The saga, once a condition holds for it."""
        end_s = time.monotonic() + bound_s
        while not condition(saga := await client.get(saga_id)):
            if time.monotonic() > end_s:
                raise AssertionError(f"after {bound_s} s still not so: {saga}")
            await pause()
        return saga

    async def close(self) -> None:
        """Stop whatever runs."""
        for process in (self.participant, self.coordinator):
            if process is not None and process.running:
                await process.stop()


@asynccontextmanager
async def scene(data: Path, **settings: str) -> AsyncGenerator[Scene]:
    """A scene that is up; everything of it is stopped at the end."""
    stage = Scene(data, **settings)
    try:
        await stage.start()
        yield stage
    finally:
        await stage.close()
    assert "Traceback" not in stage.coordinator.log_text(), stage.coordinator.log_text()
