"""A coordinator with something to be alarmed at: every metric has been counted, and one saga needs a person."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import pytest

from amends import Retry
from amends.v1 import operator_service_pb2, operator_service_pb2_grpc, saga_service_pb2
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.inside import inside
from tests.scenarios.raw import RawSteps, Reply, raw_steps
from tests.scenarios.sagas import steps
from tests.telemetry.page import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from tests.scenarios.inside import Inside

BOUND = timedelta(seconds=60)
NO = Reply(code=grpc.StatusCode.FAILED_PRECONDITION, text="no")
SILENT = Reply(code=grpc.StatusCode.DEADLINE_EXCEEDED)
NOTHING_THERE = Reply(code=grpc.StatusCode.NOT_FOUND)
SOON = Retry(
    initial_delay=timedelta(milliseconds=5),
    maximum_delay=timedelta(milliseconds=5),
    maximum_refusal_count=1,
    total_timeout=timedelta(milliseconds=100),
)
STUCK = "order-1043"
"""The saga whose compensation was refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """The coordinator, its page's port, its participant, and the open dead letter of `STUCK`."""

    coordinator: Inside
    participant: RawSteps
    page_port: int
    letter: str

    async def retry(self) -> None:
        """Settle the dead letter: the compensation succeeds now."""
        self.participant.plan["a/compensation"] = [Reply()]
        desk = operator_service_pb2_grpc.OperatorServiceStub(self.coordinator.channel)
        request = operator_service_pb2.RetryDeadLetterRequest(dead_letter_id=self.letter, reason="mended")
        await desk.RetryDeadLetter(request)


@asynccontextmanager
async def desk(data: Path) -> AsyncGenerator[Desk]:
    """A saga that committed, one that was compensated, one that ended unproven, one that is stuck, a refused start."""
    page_port = free_port()
    settings: dict[str, object] = {
        "prometheus_port": page_port,
        "metrics_interval_s": 0.1,
        "participant_lease_s": 3_600,
    }
    async with inside(data, **settings) as coordinator, raw_steps() as participant:
        await coordinator.announce("steps", participant.address)
        await run(coordinator, "order-1042")
        participant.plan["b/action"] = [NO]
        await run(coordinator, "order-1041")
        participant.plan["a/compensation"] = [NO]
        await run(coordinator, STUCK)
        participant.plan = {"c/action": [SILENT], "c/compensation": [NOTHING_THERE]}
        await run(coordinator, "order-1040", "c")
        participant.plan = {"b/action": [NO], "a/compensation": [NO]}
        with pytest.raises(grpc.aio.AioRpcError):
            await coordinator.sagas.StartSaga(saga_service_pb2.StartSagaRequest())
        operator = operator_service_pb2_grpc.OperatorServiceStub(coordinator.channel)
        letters = (await operator.ListDeadLetters(operator_service_pb2.ListDeadLettersRequest())).dead_letters
        (letter,) = (each.dead_letter_id for each in letters)
        yield Desk(coordinator=coordinator, participant=participant, page_port=page_port, letter=letter)


async def run(coordinator: Inside, saga_id: str, *names: str) -> None:
    """Run one saga, of the steps "a" and "b" unless others are named, to its end or until it needs a person."""
    saga = steps(*(names or ("a", "b")), retry=SOON, undo_retry=SOON, by_key=bool(names))
    await coordinator.client.run(saga, ScenarioInput(amount=1), saga_id=saga_id, timeout=BOUND)
