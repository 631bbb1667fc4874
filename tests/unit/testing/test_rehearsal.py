"""A rehearsal: a real coordinator on virtual time, and servicers that can't tell it from a network."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from amends import (
    Committed,
    Compensated,
    CompensationFailed,
    InvalidDefinitionError,
    InvalidParticipantError,
    PastPointOfNoReturnError,
    Rejected,
    Saga,
    SagaIdInUseError,
    SagaNotFoundError,
    TryLater,
    WaitTimeoutError,
    current_step,
)
from amends.participant import ActionTarget, Direction, StepKind
from amends.testing import Rehearsal, StandsStillError, StuckError, WrongLoopError, run
from amends.v1 import operator_service_pb2, saga_pb2
from amends.v1.operator_service_pb2_grpc import OperatorServiceStub
from scenario.v1.scenario_pb2 import DoRequest, DoResponse, ScenarioInput, ScenarioOutput, UndoRequest, UndoResponse
from tests.scenarios.sagas import Do, ScenarioSaga, Undo, steps
from tests.unit.testing.stage import Steps

if TYPE_CHECKING:
    from tests.unit.testing.stage import Context

INPUT = ScenarioInput(amount=7)
BEGIN = datetime(2100, 1, 1, tzinfo=UTC)


def with_a_pivot() -> ScenarioSaga:
    """A compensatable step, the pivot, and a retriable one."""
    saga: ScenarioSaga = Saga("with-a-pivot", input=ScenarioInput, output=ScenarioOutput)
    first = saga.step("a", Do(name="a"))
    first.compensated_by(Undo(effect_id=first.response.effect_id, name="a"))
    saga.pivot("b", Do(name="b"))
    last = saga.retriable("c", Do(name="c"))
    saga.output(ScenarioOutput)(effect_id=last.response.effect_id)
    return saga


def test_a_saga_commits() -> None:
    """The end comes with the saga's own types, at once."""
    servicer = Steps()

    async def main() -> None:
        async with Rehearsal({"steps": [servicer]}) as rehearsal:
            end = await rehearsal.run(steps("a", "b"), INPUT, saga_id="s-1")
            assert end == Committed("s-1", ScenarioOutput(effect_id="e-b"))
            assert rehearsal.now == BEGIN

    run(main)
    assert servicer.done == ["a", "b"]


def test_a_saga_is_compensated() -> None:
    """A refusal undoes what was done, newest first."""
    servicer = Steps(refuses={"c"})

    async def main() -> None:
        async with Rehearsal({"steps": [servicer]}) as rehearsal:
            end = await rehearsal.run(steps("a", "b", "c"), INPUT)
            assert isinstance(end, Compensated), rehearsal.timeline()
            assert (end.failure.step, end.failure.reason) == ("c", "REFUSED")

    run(main)
    assert servicer.done == ["a", "b", "-b", "-a"]


def test_handlers_get_what_a_coordinator_sends() -> None:
    """Metadata, deadline and step are those of a call over a network."""
    servicer, seen = Steps(refuses={"b"}), list[tuple[float | None, str]]()

    class Watching(Steps):
        async def Do(self, request: DoRequest, context: Context) -> DoResponse:
            seen.append((current_step().time_remaining(), context.peer()))
            assert dict(context.invocation_metadata() or ())["amends-ledger"] == "rehearsal"
            return await servicer.Do(request, context)

        async def Undo(self, request: UndoRequest, context: Context) -> UndoResponse:
            return await servicer.Undo(request, context)

    async def main() -> None:
        async with Rehearsal({"steps": [Watching()]}) as rehearsal:
            await rehearsal.run(steps("a", "b"), INPUT, saga_id="s-1")

    run(main)
    assert [time_s for time_s, _ in seen] == [2.0, 2.0]
    action, _, undoing = servicer.seen
    assert (action.key, action.attempt, action.kind) == ("s-1/a/action", 1, StepKind.COMPENSATABLE)
    assert (undoing.key, undoing.direction) == ("s-1/a/compensation", Direction.COMPENSATION)
    assert (undoing.action_key, undoing.action_target) == (action.key, ActionTarget.SAME)
    assert undoing.action_key_uuid == action.key_uuid
    assert undoing.step_time == action.step_time == BEGIN


def test_time_passes_between_attempts_only() -> None:
    """Back-off is waited for in virtual time; `TryLater` and other failures are read as everywhere."""
    answers: list[BaseException | None] = [TryLater("not now", timedelta(seconds=3)), RuntimeError("a fault"), None]

    class Failing(Steps):
        async def Do(self, request: DoRequest, context: Context) -> DoResponse:
            fault = answers.pop(0)
            if fault is not None:
                raise fault
            return await super().Do(request, context)

    servicer = Failing()

    async def main() -> None:
        async with Rehearsal({"steps": [servicer]}) as rehearsal:
            end = await rehearsal.run(steps("a"), INPUT)
            assert isinstance(end, Committed), rehearsal.timeline()
            assert BEGIN + timedelta(milliseconds=20) < rehearsal.now < BEGIN + timedelta(seconds=2)

    run(main)
    assert [step.attempt for step in servicer.seen] == [3]


def test_plain_handlers_run_in_threads() -> None:
    """A servicer that isn't asynchronous is rehearsed as it is, and time waits for it."""

    class Plain(Steps):
        def Do(self, request: DoRequest, context: Context) -> DoResponse:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride] - a plain one
            self.done.append(threading.current_thread().name)
            assert (current_step().time_remaining(), context.time_remaining()) == (2.0, 2.0)
            return DoResponse(effect_id=current_step().key)

    servicer = Plain()

    async def main() -> None:
        async with Rehearsal({"steps": [servicer]}) as rehearsal:
            end = await rehearsal.run(steps("a"), INPUT, saga_id="s-1")
            assert end == Committed("s-1", ScenarioOutput(effect_id="s-1/a/action"))
            assert rehearsal.now == BEGIN

    run(main)
    assert threading.current_thread().name not in servicer.done


def test_a_handler_that_is_too_slow_is_cancelled_at_its_deadline() -> None:
    """What a handler sleeps is virtual time, and its call ends at the deadline as over a network."""
    cancelled: list[float] = []

    class Slow(Steps):
        async def Do(self, request: DoRequest, context: Context) -> DoResponse:
            if current_step().attempt == 1:
                try:
                    await asyncio.sleep(60)
                finally:
                    cancelled.append(asyncio.get_running_loop().time())
            return await super().Do(request, context)

    async def main() -> None:
        async with Rehearsal({"steps": [Slow()]}) as rehearsal:
            assert isinstance(await rehearsal.run(steps("a"), INPUT, saga_id="s-1"), Committed)
            attempts = (await rehearsal.client.get("s-1")).intents[0].attempts
            assert [attempt.status_code for attempt in attempts] == ["DEADLINE_EXCEEDED", "OK"]

    run(main)
    assert cancelled == [2.0]


def test_a_handler_that_never_ends_is_told_with_its_line() -> None:
    """What waits for something outside that never comes would keep time from moving for ever."""

    class Endless(Steps):
        async def Do(self, request: DoRequest, context: Context) -> DoResponse:
            return await self.wait_for_the_bank() if request.amount else DoResponse(effect_id="e")

        async def wait_for_the_bank(self) -> DoResponse:
            answer: DoResponse = await asyncio.get_running_loop().create_future()
            return answer

    async def main() -> None:
        async with Rehearsal({"steps": [Endless()]}) as rehearsal:
            await rehearsal.run(steps("a"), ScenarioInput(amount=0))
            await asyncio.sleep(1)  # everything is loaded by now, so only the handler takes real time
            await rehearsal.run(steps("a"), INPUT)

    place = r"test_rehearsal\.py:\d+ in wait_for_the_bank"
    with pytest.raises(StuckError, match=r"steps/scenario\.v1\.StepService/Do: .*" + place):
        run(main, patience_s=0.3)


def test_an_operator_retries_what_waits_for_a_person() -> None:
    """A compensation that is refused until a person is called ends the run; retried, the saga ends."""
    refusing = {"a"}

    class Stubborn(Steps):
        async def Undo(self, request: UndoRequest, context: Context) -> UndoResponse:
            if request.name in refusing:
                raise Rejected("not yet")
            return await super().Undo(request, context)

    servicer = Stubborn(refuses={"b"})

    async def main() -> None:
        async with Rehearsal({"steps": [servicer]}) as rehearsal:
            end = await rehearsal.run(steps("a", "b"), INPUT, saga_id="s-1")
            assert isinstance(end, CompensationFailed)
            refusing.clear()
            await rehearsal.retry(end.dead_letters[0].dead_letter_id)
            assert (await rehearsal.settled("s-1")).state == saga_pb2.Saga.STATE_COMPENSATED
            entries = await OperatorServiceStub(rehearsal.channel).ListAuditEntries(
                operator_service_pb2.ListAuditEntriesRequest(saga_id="s-1")
            )
            assert [entry.claimed_actor for entry in entries.audit_entries] == ["operator"]

    run(main)
    assert servicer.done == ["a", "-a"]


def test_a_running_saga_that_waits_for_a_person_is_told() -> None:
    """Behind the point of no return nothing is given up: who rehearses hears that nothing goes on, and resolves it."""

    class Refusing(Steps):
        async def Do(self, request: DoRequest, context: Context) -> DoResponse:
            if request.name == "c":
                raise Rejected("never")
            return await super().Do(request, context)

    async def main() -> None:
        async with Rehearsal({"steps": [Refusing()]}) as rehearsal:
            with pytest.raises(StandsStillError, match="waits for a person: c REFUSED") as told:
                await rehearsal.run(with_a_pivot(), INPUT, saga_id="s-1")
            (letter,) = told.value.saga.dead_letters
            await rehearsal.resolve(
                letter.dead_letter_id, saga_pb2.RESOLUTION_HAPPENED, response=DoResponse(effect_id="by hand")
            )
            end = rehearsal.client.handle(with_a_pivot(), "s-1").end(await rehearsal.settled("s-1"))
            assert end == Committed("s-1", ScenarioOutput(effect_id="by hand"))

    run(main)


def test_the_client_is_the_sdks_own() -> None:
    """Start, wait, get, watch, list and abort, with their errors; what it waits is virtual time."""

    class Waiting(Steps):
        async def Do(self, request: DoRequest, context: Context) -> DoResponse:
            if request.name == "a":
                await asyncio.sleep(1.5)
            return await super().Do(request, context)

    servicer = Waiting()

    async def main() -> None:
        async with Rehearsal({"steps": [servicer]}) as rehearsal:
            client = rehearsal.client
            handle = await client.start(steps("a", "b"), INPUT, saga_id="s-1", labels={"of": "test"})
            with pytest.raises(WaitTimeoutError):
                await handle.wait(timedelta(seconds=1))
            assert [saga.saga_id async for saga in client.list(labels={"of": "test"})] == ["s-1"]
            await handle.abort("changed my mind")
            states = [saga.state async for saga in handle.watch()]
            assert states[-1] == saga_pb2.Saga.STATE_COMPENSATED
            assert isinstance(await handle.wait(), Compensated)
            await rehearsal.run(with_a_pivot(), INPUT, saga_id="s-2")
            with pytest.raises(PastPointOfNoReturnError):
                await client.abort("s-2")
            with pytest.raises(SagaIdInUseError):
                await client.start(steps("a"), INPUT, saga_id="s-1")
            with pytest.raises(SagaNotFoundError):
                await client.get("s-3")

    run(main)
    assert servicer.done == ["a", "-a", "a", "b", "c"]


def test_registration_finds_the_same_faults() -> None:
    """A definition is checked as everywhere."""

    async def main() -> None:
        async with Rehearsal({"steps": [Steps()]}) as rehearsal:
            with pytest.raises(InvalidDefinitionError, match="timeout"):
                await rehearsal.run(steps("a", attempt_timeout=timedelta(microseconds=1)), INPUT)

    run(main)


def test_a_method_that_nobody_serves_is_not_sent() -> None:
    """A participant that was forgotten is told of in the timeline, and the saga ends with its timeout."""

    async def main() -> str:
        async with Rehearsal({}) as rehearsal:
            end = await rehearsal.run(steps("a", timeout=timedelta(minutes=1)), INPUT)
            assert isinstance(end, Compensated)
            assert rehearsal.now == BEGIN + timedelta(minutes=1)
            return rehearsal.timeline()

    assert "no participant" in run(main)


def test_what_cannot_be_served_is_refused() -> None:
    """As `ParticipantServer.add` refuses it."""

    async def main() -> None:
        with pytest.raises(InvalidParticipantError, match="is a class"):
            Rehearsal({"steps": [Steps]})

    run(main)


async def test_a_rehearsal_needs_virtual_time() -> None:
    """On an ordinary loop it would wait for real."""
    with pytest.raises(WrongLoopError, match=r"amends\.testing\.run\(\)"):
        Rehearsal({"steps": [Steps()]})
