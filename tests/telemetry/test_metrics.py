"""Metrics as a backend gets them: the ledger's own counts, under fixed names, and no more series for more sagas."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import pytest

from amends import Retry
from amends.v1 import operator_service_pb2, operator_service_pb2_grpc, saga_pb2, saga_service_pb2
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.inside import inside
from tests.scenarios.raw import RawSteps, Reply, raw_steps, served
from tests.scenarios.sagas import steps
from tests.telemetry.receiver import Receiver, receiver

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from tests.scenarios.inside import Inside
    from tests.scenarios.raw import Seen

pytestmark = pytest.mark.telemetry

BOUND = timedelta(seconds=60)
NO = Reply(code=grpc.StatusCode.FAILED_PRECONDITION, text="no")
SOON = Retry(initial_delay=timedelta(milliseconds=5), maximum_delay=timedelta(milliseconds=5), maximum_refusal_count=1)
DEFINITION = "scenario-a-b"


@pytest.fixture
async def sink() -> AsyncGenerator[Receiver]:
    """A backend."""
    async with receiver() as taking:
        yield taking


def settings(sink: Receiver) -> dict[str, object]:
    """A coordinator that exports to the backend often."""
    return {
        "otlp_endpoint": f"http://{sink.address}",
        "metrics_interval_s": 0.1,
        "trace_ratio": 0.0,
        "participant_lease_s": 3_600,
    }


async def run_many(coordinator: Inside, ids: list[str], *names: str) -> None:
    """Run so many sagas, of steps "a" and "b" unless others are named; of many at once no call is too slow."""
    saga = steps(*(names or ("a", "b")), attempt_timeout=BOUND, retry=SOON, undo_retry=SOON)

    async def one(saga_id: str) -> None:
        await coordinator.client.run(saga, ScenarioInput(amount=1), saga_id=saga_id, timeout=BOUND)

    for begin in range(0, len(ids), 100):
        await asyncio.gather(*map(one, ids[begin : begin + 100]))


async def counted(coordinator: Inside, state: saga_pb2.Saga.State.ValueType) -> int:
    """How many sagas the ledger has in a state."""
    request = saga_service_pb2.ListSagasRequest(states=[state], page_size=1_000)
    return len((await coordinator.sagas.ListSagas(request)).sagas)


def plan(participant: RawSteps, *, a_undo: Reply | None = None, b: Reply | None = None) -> None:
    """What the participant answers from now on."""
    participant.plan["b/action"] = [b or Reply()]
    participant.plan["a/compensation"] = [a_undo or Reply()]


async def test_outcome_counters_equal_the_ledgers_counts(sink: Receiver, tmp_path: Path) -> None:
    """While no process is killed nothing is counted twice and nothing is left out; a repaired saga counts once more."""
    async with inside(tmp_path, **settings(sink)) as coordinator, raw_steps() as participant:
        await coordinator.announce("steps", participant.address)
        await run_many(coordinator, [f"good-{number}" for number in range(30)])
        plan(participant, b=NO)
        await run_many(coordinator, [f"bad-{number}" for number in range(20)])
        plan(participant, b=NO, a_undo=NO)
        await run_many(coordinator, ["worse-1", "worse-2"])
        await sink.exported_again()

        def ended(outcome: str) -> float:
            return sink.value("amends.saga.ended", definition=DEFINITION, outcome=outcome)

        assert sink.value("amends.saga.started", definition=DEFINITION) == 52
        assert ended("committed") == await counted(coordinator, saga_pb2.Saga.STATE_COMMITTED) == 30
        assert ended("compensated") == await counted(coordinator, saga_pb2.Saga.STATE_COMPENSATED) == 20
        failed = await counted(coordinator, saga_pb2.Saga.STATE_COMPENSATION_FAILED)
        assert ended("compensation_failed") == failed == 2
        assert sink.value("amends.dead_letter.opened", reason="refused") == sink.value("amends.dead_letter.open") == 2
        assert sink.value("amends.dead_letter.oldest_age") > 0
        assert sink.value("amends.saga.running", state="compensation_failed") == 2
        assert sink.value("amends.saga.running", state="running") == 0
        assert sink.value("amends.compensation.duration", definition=DEFINITION) == 20
        assert sink.value("amends.saga.duration", definition=DEFINITION, outcome="committed") == 30
        calls = {"method": "scenario.v1.StepService/Do", "direction": "action"}
        assert sink.value("amends.call.duration", outcome="rejected", **calls) == 22
        assert sink.value("amends.call.duration", outcome="succeeded", **calls) == 30 + 52
        plan(participant)
        await retry_all(coordinator)
        await sink.until(lambda _: ended("compensated") == 22, "the repaired sagas counted")
        await sink.until(lambda _: sink.value("amends.dead_letter.open") == 0, "no open dead letter")
        assert ended("compensation_failed") == 2


DAMAGE = (
    "UPDATE intent SET state = 'SULKING' WHERE saga_id = 'a-state'",
    "UPDATE saga SET format = 99 WHERE id = 'a-format'",
    "UPDATE saga SET input = x'ff' WHERE id = 'an-input'",
)
"""What the ledger can't make sense of when it claims, what it doesn't know when it is opened, and what only the driver
finds out."""


async def test_dead_letters_of_what_nobody_can_read_are_counted(sink: Receiver, tmp_path: Path) -> None:
    """L2: whoever opens a dead letter, the counter has it, and has it once: it equals the ledger's count."""
    async with raw_steps({"a": [Reply(delay_s=60)]}) as participant:
        async with inside(tmp_path, **settings(sink)) as coordinator:
            await coordinator.announce("steps", participant.address)
            for saga_id in ("a-state", "a-format", "an-input"):
                await coordinator.client.start(steps("a", "b"), ScenarioInput(amount=1), saga_id=saga_id)
        with closing(sqlite3.connect(tmp_path / "ledger.db", timeout=10)) as outside, outside:
            for statement in DAMAGE:
                assert outside.execute(statement).rowcount == 1
        participant.plan["a/action"] = [Reply()]
        async with inside(tmp_path, **settings(sink)):
            await sink.until(lambda it: it.value("amends.dead_letter.open") == 3, "three open dead letters")
            await sink.exported_again()
            assert sink.value("amends.dead_letter.opened", reason="unreadable") == 3


async def retry_all(coordinator: Inside) -> None:
    """Retry every open dead letter."""
    desk = operator_service_pb2_grpc.OperatorServiceStub(coordinator.channel)
    for letter in (await desk.ListDeadLetters(operator_service_pb2.ListDeadLettersRequest())).dead_letters:
        request = operator_service_pb2.RetryDeadLetterRequest(dead_letter_id=letter.dead_letter_id, reason="mended")
        await desk.RetryDeadLetter(request)


async def test_what_stands_and_what_the_ledger_does_is_measured(sink: Receiver, tmp_path: Path) -> None:
    """The sweeper, the ledger's batches, calls under way and those that wait for a full participant."""
    async with inside(tmp_path, **settings(sink)) as coordinator, raw_steps({"a": [Reply(delay_s=60)]}) as participant:
        await coordinator.announce("steps", participant.address)
        await coordinator.client.start(steps("a"), ScenarioInput(amount=1), saga_id="waits")
        await sink.until(lambda it: it.value("amends.participant.in_flight", participant="steps") == 1, "a call")
        await sink.exported_again()
        assert sink.value("amends.saga.running", state="running") == 1
        assert sink.value("amends.ledger.batch.size") == sink.value("amends.ledger.batch.duration") > 0
        assert sink.value("amends.due.lag") < 5
        assert sink.value("amends.sweeper.last_pass_age") < 5
        assert sink.value("amends.participant.queue", participant="steps") == 0
        await coordinator.client.abort("waits")


class NeverTheSame(RawSteps):
    """Refuses every step b, each with words of its own."""

    def reply_to(self, seen: Seen) -> Reply:
        """See the class."""
        if seen.side != "b/action":
            return Reply()
        return Reply(code=grpc.StatusCode.FAILED_PRECONDITION, text=f"no {seen.metadata['amends-saga-id']} today")


async def test_f21_series_do_not_grow_with_sagas(sink: Receiver, tmp_path: Path) -> None:
    """F21: 2,000 sagas with ids and error texts of their own, and 50 methods that nobody knows, make no new series."""
    participant = NeverTheSame()
    async with inside(tmp_path, **settings(sink), connect_gate_s=30) as coordinator, served(participant):
        await coordinator.announce("steps", participant.address)
        await run_many(coordinator, ["first"], "b")
        await sink.exported_again(3)
        before = sink.series_of("amends.")
        await run_many(coordinator, [f"order-{number}" for number in range(2_000)], "b")
        for number in range(50):
            path = f"/amends.v1.SagaService/Unknown{number}"
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = coordinator.channel.unary_unary(path)
            with pytest.raises(grpc.aio.AioRpcError):
                await call(b"")
        await sink.exported_again()
        assert sink.value("amends.saga.started", definition="scenario-b") == 2_001
        assert sink.series_of("amends.") == before
