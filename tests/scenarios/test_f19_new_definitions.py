"""F19: a saga ends with the definition that it began with, whatever is registered or announced while it runs."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import pytest

from amends import Committed, Compensated, Retry, Saga, SagaClient
from amends.v1 import registry_service_pb2_grpc
from amends.v1 import saga_service_pb2 as pb
from amends.v1.saga_service_pb2_grpc import SagaServiceStub
from scenario.v1.scenario_pb2 import DESCRIPTOR, DoRequest, ScenarioInput, UndoRequest
from tests.integration.api.refusals import refused
from tests.scenarios.inside import announcement
from tests.scenarios.processes import Process, coordinator
from tests.scenarios.raw import RawSteps, Reply, Seen, served
from tests.scenarios.sagas import Do, Undo
from tests.unit.grpc_api.samples import scenario_files
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

pytestmark = [pytest.mark.scenario, pytest.mark.crash]

BOUND = timedelta(seconds=60)
PATIENT = Retry(
    initial_delay=timedelta(milliseconds=20),
    maximum_delay=timedelta(milliseconds=200),
    total_timeout=timedelta(minutes=10),
)
HELD = [Reply(delay_s=120)]
AWAY = [Reply(code=grpc.StatusCode.UNAVAILABLE)]
NO = [Reply(code=grpc.StatusCode.FAILED_PRECONDITION)]


class PerSaga(RawSteps):
    """A raw participant whose plan is for "saga/step/direction"."""

    def reply_to(self, seen: Seen) -> Reply:
        """The one reply that is planned just now; all is well where there is none."""
        return self.plan.get(f"{seen.metadata['amends-saga-id']}/{seen.side}", [Reply()])[0]

    def sides(self, saga_id: str) -> list[str]:
        """The different calls of one saga, in the order in which they came first."""
        return list(dict.fromkeys(each.side for each in self.of(saga_id)))

    def began(self) -> set[tuple[str, str]]:
        """All calls so far: of which saga, and which of its calls."""
        return {(each.metadata["amends-saga-id"], each.side) for each in self.seen}

    def of(self, saga_id: str) -> list[Seen]:
        """The calls of one saga."""
        return [each for each in self.seen if each.metadata["amends-saga-id"] == saga_id]


def trip(version: str, steps: str) -> Saga[ScenarioInput, None]:
    """A saga of such steps; every request says which version it was built by."""
    saga = Saga("trip", input=ScenarioInput, timeout=timedelta(hours=1))
    for name in steps:
        step = saga.step(name, Do(name=version, amount=saga.input.amount), timeout=BOUND, retry=PATIENT)
        undo = Undo(effect_id=step.response.effect_id, name=version)
        step.compensated_by(undo, timeout=BOUND, retry=PATIENT)
    return saga


FIRST, LONGER, SHORTER = trip("ABC", "abc"), trip("AXBC", "axbc"), trip("AC", "ac")
FORWARD = ["a/action", "b/action", "c/action"]
REFUSED_WITHOUT_UNDO = tuple(f"steps[{index}].compensation.method" for index in range(3))
BACKWARD = [*FORWARD, "b/compensation", "a/compensation"]


@asynccontextmanager
async def on_stage(data: Path) -> AsyncGenerator[tuple[Process, PerSaga]]:
    """A coordinator as a process, with a participant that outlives it."""
    process, steps = coordinator(data, AMENDS_PARTICIPANT_LEASE_S="600"), PerSaga()
    async with served(steps):
        await process.start()
        try:
            await announce(process, steps)
            yield process, steps
        finally:
            await process.kill()
    assert "Traceback" not in process.log_text(), process.log_text()


async def announce(process: Process, steps: PerSaga, described: FileDescriptorSet | None = None) -> None:
    """Announce the participant, with other descriptors where some are given."""
    request = announcement("steps", steps.address)
    if described is not None:
        request.descriptors.CopyFrom(described)
    async with grpc.aio.insecure_channel(process.address) as channel:
        await registry_service_pb2_grpc.RegistryServiceStub(channel).RegisterParticipant(request)


async def start_by_name(client: SagaClient, saga_id: str) -> str:
    """Start a saga of the default version, as a client that knows only the name; the version."""
    request = pb.StartSagaRequest(saga_id=saga_id, definition_name="trip")
    request.input.Pack(ScenarioInput(amount=7))
    async with grpc.aio.insecure_channel(client.target) as channel:
        return (await SagaServiceStub(channel).StartSaga(request)).saga.definition_version


async def begin(process: Process, steps: PerSaga, **at: str) -> str:
    """Start sagas of the first version, and wait until each is at the call that it is named with; the version."""
    async with SagaClient(process.address) as client:
        for saga_id in at:
            await client.start(FIRST, ScenarioInput(amount=7), saga_id=saga_id)
        wanted = set(at.items())
        await eventually(lambda: wanted <= steps.began(), what=f"each is at {at}", bound_s=30)
        return (await client.get(next(iter(at)))).definition_version


async def test_f19_running_sagas_keep_their_version_through_restarts(tmp_path: Path) -> None:
    """F19, S2: waiting, with an intent that is pending, or with an undo under way: every old saga ends with A, B, C."""
    async with on_stage(tmp_path) as (process, steps):
        steps.plan = {
            "waits/b/action": AWAY,
            "refused/b/action": AWAY,
            "pending/b/action": HELD,
            "undoing/c/action": NO,
            "undoing/b/compensation": HELD,
        }
        first = await begin(
            process, steps, waits="b/action", refused="b/action", pending="b/action", undoing="b/compensation"
        )
        await process.kill()
        await process.start()
        async with SagaClient(process.address) as client:
            for name, saga in (("longer", LONGER), ("shorter", SHORTER)):
                assert isinstance(await client.run(saga, ScenarioInput(amount=7), saga_id=name), Committed)
        assert await process.stop() == 0
        steps.plan = {"refused/c/action": NO, "undoing/c/action": NO}
        await process.start()

        async with SagaClient(process.address) as client:
            for saga_id, ended, sides in (
                ("waits", Committed, FORWARD),
                ("pending", Committed, FORWARD),
                ("refused", Compensated, BACKWARD),
                ("undoing", Compensated, BACKWARD),
            ):
                assert isinstance(await client.handle(FIRST, saga_id).wait(BOUND), ended)
                assert (await client.get(saga_id)).definition_version == first
                assert steps.sides(saga_id) == sides
                assert built_by(steps, saga_id) == {"ABC"}
            assert steps.sides("longer") == ["a/action", "x/action", "b/action", "c/action"]
            # Who asks for the old version gets it; that moves nothing, even as the first thing after the restart.
            assert isinstance(await client.run(FIRST, ScenarioInput(amount=7), saga_id="again"), Committed)
            assert (steps.sides("again"), built_by(steps, "again")) == (FORWARD, {"ABC"})
            newest = await start_by_name(client, "new")
            assert newest == (await client.get("shorter")).definition_version != first
            assert isinstance(await client.handle(SHORTER, "new").wait(BOUND), Committed)
            assert (steps.sides("new"), built_by(steps, "new")) == (["a/action", "c/action"], {"AC"})
            assert await start_by_name(client, "newest") == newest


def built_by(steps: PerSaga, saga_id: str) -> set[str]:
    """Which versions built a saga's requests, and that they are whole."""
    found: set[str] = set()
    for each in steps.of(saga_id):
        if each.side.endswith("/action"):
            request = DoRequest.FromString(each.request)
            assert request.amount == 7
            found.add(request.name)
        else:
            undo = UndoRequest.FromString(each.request)
            assert undo.effect_id == "e-1"
            found.add(undo.name)
    return found


def grown(file: FileDescriptorProto) -> None:
    """A change that breaks nobody: a field and a method more."""
    message = next(each for each in file.message_type if each.name == "DoRequest")
    message.field.add(name="urgent", number=9, type=8, label=1)
    method = file.service[0].method.add()
    method.CopyFrom(file.service[0].method[0])
    method.name = "DoMore"


def shrunk(file: FileDescriptorProto) -> None:
    """A change that breaks who calls it: the undo and the field that it finds its work by are gone."""
    message = next(each for each in file.message_type if each.name == "UndoRequest")
    del message.field[0]
    del file.service[0].method[1]


@pytest.mark.parametrize(("change", "faults"), [(grown, ()), (shrunk, REFUSED_WITHOUT_UNDO)])
async def test_f19_new_descriptors_change_no_running_saga(
    tmp_path: Path, change: Callable[[FileDescriptorProto], None], faults: tuple[str, ...]
) -> None:
    """F19: a participant's deploy changes no running saga, nor what is registered; only what is registered afterwards
    and says nothing of its types goes by what is announced.
    """
    described = scenario_files()
    change(next(each for each in described.file if each.name == DESCRIPTOR.name))
    async with on_stage(tmp_path) as (process, steps):
        steps.plan = {"forward/b/action": HELD, "backward/b/action": HELD}
        first = await begin(process, steps, forward="b/action", backward="b/action")
        await announce(process, steps, described)
        await process.kill()
        steps.plan = {"backward/c/action": NO}
        await process.start()
        async with SagaClient(process.address) as client:
            assert isinstance(await client.handle(FIRST, "forward").wait(BOUND), Committed)
            assert isinstance(await client.handle(FIRST, "backward").wait(BOUND), Compensated)
            assert (steps.sides("forward"), steps.sides("backward")) == (FORWARD, BACKWARD)
            assert built_by(steps, "forward") | built_by(steps, "backward") == {"ABC"}
            assert isinstance(await client.run(FIRST, ScenarioInput(amount=7), saga_id="again"), Committed)
            assert (await client.get("again")).definition_version == first
        assert await faults_without_types(process, first) == faults


async def faults_without_types(process: Process, carried: str) -> tuple[str, ...]:
    """What is wrong with the first version where it goes by what is announced; if nothing, it is another version than
    the one that carries its types.
    """
    definition = FIRST.definition()
    definition.ClearField("descriptors")
    for step in definition.steps:
        step.ClearField("compensation")  # as the annotation says
    async with grpc.aio.insecure_channel(process.address) as channel:
        request = pb.RegisterSagaDefinitionRequest(definition=definition)
        call = SagaServiceStub(channel).RegisterSagaDefinition(request)
        try:
            assert (await call).definition.version != carried
        except grpc.aio.AioRpcError:
            return (await refused(call)).paths
    return ()
