"""F05: StartSaga is sent again after the saga ended: at once, after a restart, after retention has emptied it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

from amends import (
    Committed,
    Compensated,
    OutputPurgedError,
    PastPointOfNoReturnError,
    SagaClient,
    SagaIdInUseError,
)
from amends.v1 import operator_service_pb2, saga_pb2
from amends.v1 import saga_service_pb2 as pb
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.integration.api.refusals import refused
from tests.scenarios.desk import Desk
from tests.scenarios.inside import Inside, inside
from tests.scenarios.raw import Reply, raw_steps
from tests.scenarios.sagas import ScenarioSaga, scene, steps
from tests.unit.grpc_api.samples import errand

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.scenario

INPUT, OTHER = ScenarioInput(amount=1), ScenarioInput(amount=2)
GOOD, BAD = steps("a", "b"), steps("a", "no")
REFUSED = {"no": [Reply(code=grpc.StatusCode.FAILED_PRECONDITION, text="card 4111 declined")]}


def changed(*names: str) -> ScenarioSaga:
    """The definition of the same name with other content, so another version."""
    return steps(*names, attempt_timeout=timedelta(seconds=3))


async def test_f05_the_same_saga_as_it_ended_and_nobody_is_called(tmp_path: Path) -> None:
    """S8, S9: one saga per id, for ever; ends never change."""
    async with scene(tmp_path) as stage:
        stage.script(no=["reject"])
        async with SagaClient(stage.coordinator.address) as client:
            committed = await (await client.start(GOOD, INPUT, saga_id="good")).wait()
            compensated = await (await client.start(BAD, INPUT, saga_id="bad")).wait()
        assert isinstance(committed, Committed)
        assert isinstance(compensated, Compensated)
        before = stage.journal.read()

        async with SagaClient(stage.coordinator.address) as client:
            again = await client.start(GOOD, INPUT, saga_id="good")
            assert await again.wait() == committed
        await stage.coordinator.kill()
        await stage.coordinator.start()
        async with SagaClient(stage.coordinator.address) as client:
            assert await (await client.start(GOOD, INPUT, saga_id="good")).wait() == committed
            assert await (await client.start(BAD, INPUT, saga_id="bad")).wait() == compensated
        assert stage.journal.read() == before


async def test_f05_another_default_version_and_other_labels_are_not_compared(ledger_url: str, tmp_path: Path) -> None:
    """S9: the definition's name and the input are what counts; the saga keeps the version that it was started with."""
    async with raw_steps(REFUSED) as participant, inside(tmp_path, ledger_url=ledger_url) as coordinator:
        await coordinator.announce("raw", participant.address)
        client = coordinator.client
        ends = [
            await (await client.start(saga, INPUT, saga_id=saga_id, labels={"try": "1"})).wait()
            for saga, saga_id in ((GOOD, "good"), (BAD, "bad"))
        ]
        first, calls = await client.get("good"), len(participant.seen)
        for saga, saga_id in ((changed("a", "b"), "good"), (changed("a", "no"), "bad")):
            end = await (await client.start(saga, INPUT, saga_id=saga_id, labels={"try": "2"})).wait()
            assert end in ends
        answer = await coordinator.sagas.StartSaga(started_again("good", first.definition_name, INPUT))
        default = await coordinator.sagas.GetSagaDefinition(pb.GetSagaDefinitionRequest(name=first.definition_name))
        assert not answer.started
        assert answer.saga.definition_version == first.definition_version != default.definition.version
        assert answer.saga.labels == {"try": "1"}
        assert (await client.get("good"), len(participant.seen)) == (first, calls)


def started_again(saga_id: str, definition: str, message: ScenarioInput) -> pb.StartSagaRequest:
    """A start by the definition's name."""
    payload = AnyMessage()
    payload.Pack(message)
    return pb.StartSagaRequest(saga_id=saga_id, definition_name=definition, input=payload)


async def test_f05_after_retention_the_saga_still_says_how_it_ended(ledger_url: str, tmp_path: Path) -> None:
    """F05, S8, S9: what is left of an emptied saga answers every start, wait and verb, also after a restart; no
    participant is called, and no sentence of a participant is left.
    """
    async with raw_steps(REFUSED) as participant:
        keeping: dict[str, object] = {"ledger_url": ledger_url, "lease_ttl_s": 1.0, "heartbeat_interval_s": 0.2}
        async with inside(tmp_path, retention_s=0.2, **keeping) as coordinator:
            await coordinator.announce("raw", participant.address)
            for saga, saga_id in ((GOOD, "good"), (BAD, "bad")):
                await (await coordinator.client.start(saga, INPUT, saga_id=saga_id, labels={"try": "1"})).wait()
            for saga_id in ("good", "bad"):
                await Desk(coordinator).once(lambda saga: saga.purged, saga_id)
            calls = len(participant.seen)
            await says_how_it_ended(coordinator)
            await is_found_whatever_the_default_version_takes(coordinator)
        async with inside(tmp_path, **keeping) as coordinator:
            await coordinator.announce("raw", participant.address)
            await says_how_it_ended(coordinator)
            await is_refused_what_would_change_it(coordinator)
        assert len(participant.seen) == calls


async def says_how_it_ended(coordinator: Inside) -> None:
    """Starts and waits find both sagas as they ended, starts with another input are refused."""
    client = coordinator.client
    for saga in (GOOD, changed("a", "b")):
        with pytest.raises(OutputPurgedError) as gone:
            await (await client.start(saga, INPUT, saga_id="good", labels={"try": "2"})).wait()
        assert gone.value.end == Committed("good", None, purged=True)
    end = await client.run(BAD, INPUT, saga_id="bad")
    assert isinstance(end, Compensated)
    assert (end.purged, end.failure.step, end.failure.status_code) == (True, "no", "FAILED_PRECONDITION")
    assert end.failure.message == ""
    for saga, message, saga_id in ((GOOD, OTHER, "good"), (BAD, OTHER, "bad"), (GOOD, INPUT, "bad")):
        with pytest.raises(SagaIdInUseError):
            await client.start(saga, message, saga_id=saga_id)
    listed = {saga.saga_id: saga async for saga in client.list()}
    assert {saga_id: saga.state for saga_id, saga in listed.items()} == {
        "good": saga_pb2.Saga.STATE_COMMITTED,
        "bad": saga_pb2.Saga.STATE_COMPENSATED,
    }
    for saga_id, listed_saga in listed.items():
        row = await client.get(saga_id)
        assert row.purged
        assert listed_saga.purged
        assert {field.name for field, _ in row.ListFields()}.isdisjoint({"input", "output", "labels", "intents"})
        assert row.end_time == listed_saga.end_time
        watched = [answer.saga async for answer in coordinator.sagas.WatchSaga(pb.WatchSagaRequest(saga_id=saga_id))]
        assert [saga.state for saga in watched] == [row.state], "there is nothing more to see"
        assert "4111" not in str(row)


async def is_found_whatever_the_default_version_takes(coordinator: Inside) -> None:
    """S9: inputs are compared by the definition that the saga was started with, also where the newest takes another
    type.
    """
    newest = pb.RegisterSagaDefinitionRequest(definition=errand(name=GOOD.name))
    await coordinator.sagas.RegisterSagaDefinition(newest)
    answer = await coordinator.sagas.StartSaga(started_again("good", GOOD.name, INPUT))
    assert (answer.started, answer.saga.purged) == (False, True)
    refusal = await refused(coordinator.sagas.StartSaga(started_again("good", GOOD.name, OTHER)))
    assert refusal.reason == "SAGA_ID_IN_USE"


async def is_refused_what_would_change_it(coordinator: Inside) -> None:
    """S8, S10: aborts are answered as ever; there is nothing to run or to terminate."""
    desk, before = Desk(coordinator), [await coordinator.client.get(saga_id) for saga_id in ("good", "bad")]
    with pytest.raises(PastPointOfNoReturnError):
        await coordinator.client.abort("good")
    assert (await coordinator.client.abort("bad")).state == saga_pb2.Saga.STATE_COMPENSATED
    for saga_id in ("good", "bad"):
        terminate = operator_service_pb2.TerminateSagaRequest(saga_id=saga_id, reason="x")
        run_now = operator_service_pb2.RunSagaNowRequest(saga_id=saga_id)
        for call in (desk.stub.TerminateSaga(terminate), desk.stub.RunSagaNow(run_now)):
            assert (await refused(call)).reason == "SAGA_NOT_RUNNING"
    assert [await coordinator.client.get(saga_id) for saga_id in ("good", "bad")] == before
