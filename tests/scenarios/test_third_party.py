"""A service that knows nothing of us as a step: no annotation, no metadata, only its own requests and codes."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import pytest

from acme.v1 import charges_pb2, charges_pb2_grpc
from acme.v1.charges_pb2 import Charge, CreateChargeRequest, GetChargeRequest, RefundChargeRequest, RefundChargeResponse
from acme.v1.price_pb2 import Price
from amends import Codes, Committed, Compensated, Retry, Saga, key_uuid, method
from amends.v1 import registry_service_pb2 as pb
from amends.v1 import saga_pb2
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.inside import inside
from tests.scenarios.processes import Process
from tests.unit.grpc_api.samples import files_of
from tests.waiting import pause

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from tests.scenarios.inside import Inside

pytestmark = pytest.mark.scenario

CreateCharge = method(charges_pb2_grpc.ChargeServiceServicer.CreateCharge, CreateChargeRequest, Charge)
GetCharge = method(charges_pb2_grpc.ChargeServiceServicer.GetCharge, GetChargeRequest, Charge)
RefundCharge = method(charges_pb2_grpc.ChargeServiceServicer.RefundCharge, RefundChargeRequest, RefundChargeResponse)
BOUND = timedelta(seconds=30)
QUICK = Retry(
    initial_delay=timedelta(milliseconds=20),
    maximum_delay=timedelta(milliseconds=100),
    total_timeout=timedelta(milliseconds=500),
)
ATTEMPT = timedelta(milliseconds=400)
REPEATED = Codes(already_done=[grpc.StatusCode.ALREADY_EXISTS])


def charging(name: str, *accounts: str, participant: str = "acme", retry: Retry = QUICK) -> Saga[ScenarioInput, None]:
    """A saga that charges accounts one after the other."""
    saga = Saga(name, input=ScenarioInput, timeout=timedelta(minutes=1))
    for number, account in enumerate(accounts, start=1):
        # The company dedupes on a field of its own: that is where the key goes.
        charge = CreateCharge(request_id=saga.key_uuid, account=account, price=Price(currency="EUR", amount=5))
        step = saga.step(
            f"charge{number}", charge, codes=REPEATED, timeout=ATTEMPT, retry=retry, participant=participant
        )
        step.looked_up_by(GetCharge(request_id=saga.action_key_uuid), retry=QUICK)
        step.compensated_by(RefundCharge(request_id=saga.action_key_uuid), retry=QUICK)
    return saga


@dataclass(frozen=True, slots=True)
class Acme:
    """The company: its process, and its books as they stand on its disk."""

    process: Process
    data: Path

    def charge(self, saga_id: str, step: str) -> Charge | None:
        """What it has under the key of a saga's step."""
        file = self.data / f"{key_uuid('default', f'{saga_id}/{step}/action')}.charge"
        return Charge.FromString(file.read_bytes()) if file.exists() else None


@asynccontextmanager
async def acme(folder: Path, *arguments: str) -> AsyncGenerator[Acme]:
    """The company's process on a free port; stopped at the end."""
    data = folder / "charges"
    data.mkdir(exist_ok=True)
    command = ["tests.scenarios.third_party", "--port", "{port}", "--data", str(data), *arguments]
    process = Process(command, {}, folder / "acme.log")
    try:
        await process.start()
        yield Acme(process, data)
    finally:
        await process.stop()
    assert "Traceback" not in process.log_text(), process.log_text()


async def make_known(coordinator: Inside, target: str) -> pb.Participant:
    """Add the company as a static participant; it is asked what it serves."""
    request = pb.RegisterParticipantRequest(name="acme", connection=pb.StaticConnection(target=target))
    return (await coordinator.registry.RegisterParticipant(request)).participant


async def test_it_takes_part_by_reflection(tmp_path: Path) -> None:
    """A saga of it commits: described by its own reflection, deduped by the key in its own field (S2)."""
    async with acme(tmp_path) as company, inside(tmp_path) as coordinator:
        known = await make_known(coordinator, company.process.address)
        handle = await coordinator.client.start(charging("paid", "good", "good"), ScenarioInput(), saga_id="s")
        assert isinstance(await handle.wait(BOUND), Committed)
        assert all(company.charge("s", step) is not None for step in ("charge1", "charge2"))
    assert known.services == ["acme.v1.ChargeService"]
    assert not known.instances
    assert known.connection.target == company.process.address


async def test_it_takes_part_by_a_descriptor_file(tmp_path: Path) -> None:
    """Without reflection it is described by its files; asked without them it is refused with what to do."""
    async with acme(tmp_path, "--silent") as company, inside(tmp_path) as coordinator:
        with pytest.raises(grpc.aio.AioRpcError, match=r"has no server reflection.*--descriptors FILE") as refused:
            await make_known(coordinator, company.process.address)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        request = pb.RegisterParticipantRequest(
            name="acme",
            connection=pb.StaticConnection(target=company.process.address),
            descriptors=files_of(charges_pb2.DESCRIPTOR),
        )
        await coordinator.registry.RegisterParticipant(request)
        handle = await coordinator.client.start(charging("paid", "good"), ScenarioInput(), saga_id="s")
        assert isinstance(await handle.wait(BOUND), Committed)
        assert company.charge("s", "charge1") is not None


async def test_a_lost_answer_is_looked_up(tmp_path: Path) -> None:
    """S3: charged, the answer lost, the repeat told that it was there already: the lookup has the answer, and one
    charge was made.
    """
    async with acme(tmp_path) as company, inside(tmp_path) as coordinator:
        await make_known(coordinator, company.process.address)
        patient = Retry(initial_delay=timedelta(milliseconds=20), total_timeout=BOUND)
        lost = charging("lost", "lost-answer", retry=patient)
        handle = await coordinator.client.start(lost, ScenarioInput(), saga_id="s")
        assert isinstance(await handle.wait(BOUND), Committed)
        saga = await handle.get()
        charge = company.charge("s", "charge1")
    action, lookup = saga.intents
    *silent, repeated = (attempt.status_code for attempt in action.attempts)
    assert (set(silent), repeated) == ({"DEADLINE_EXCEEDED"}, "ALREADY_EXISTS")
    assert (lookup.direction, lookup.state) == (saga_pb2.DIRECTION_LOOKUP, saga_pb2.Intent.STATE_SUCCEEDED)
    answered = Charge()
    assert action.response.Unpack(answered)
    assert answered == charge
    assert not saga.unproven


async def test_an_undo_of_nothing(tmp_path: Path) -> None:
    """S4: never known to have happened, its undo finds nothing: compensated, and marked as not proven, because such a
    company takes a request that arrives late.
    """
    async with acme(tmp_path) as company, inside(tmp_path) as coordinator:
        await make_known(coordinator, company.process.address)
        handle = await coordinator.client.start(charging("down", "good", "down"), ScenarioInput(), saga_id="s")
        assert isinstance(await handle.wait(BOUND), Compensated)
        saga = await handle.get()
        first, second = company.charge("s", "charge1"), company.charge("s", "charge2")
    undo = next(
        each for each in saga.intents if (each.step, each.direction) == ("charge2", saga_pb2.DIRECTION_COMPENSATION)
    )
    assert undo.state == saga_pb2.Intent.STATE_NOTHING_TO_UNDO
    assert first is not None
    assert (first.refunded, second, saga.unproven) == (True, None, True)


async def test_a_refused_later_step_is_undone(tmp_path: Path) -> None:
    """A clear no of the second step gives the first one's money back."""
    async with acme(tmp_path) as company, inside(tmp_path) as coordinator:
        await make_known(coordinator, company.process.address)
        handle = await coordinator.client.start(charging("no", "good", "declined"), ScenarioInput(), saga_id="s")
        assert isinstance(await handle.wait(BOUND), Compensated)
        failure = (await handle.get()).failure
        charge = company.charge("s", "charge1")
    assert (failure.step, failure.message) == ("charge2", "the card was declined")
    assert charge is not None
    assert charge.refunded


async def test_undone_where_it_has_moved_to(tmp_path: Path) -> None:
    """L1: it moves while a saga runs; the undo of work done at the old place is called at the new one, also after a
    restart of the coordinator.
    """
    async with inside(tmp_path) as coordinator, acme(tmp_path) as company:
        await make_known(coordinator, company.process.address)
        saga = charging("moved", "good")
        # Nobody serves the second step, so the saga waits with its first charge made.
        later = saga.step("later", CreateCharge(request_id=saga.key_uuid), participant="nobody")
        later.compensated_by(RefundCharge(request_id=saga.action_key_uuid))
        handle = await coordinator.client.start(saga, ScenarioInput(), saga_id="s")
        while company.charge("s", "charge1") is None:
            await pause()
        before = company.process.port
    async with inside(tmp_path) as coordinator, acme(tmp_path, "--silent") as company:
        assert company.process.port != before
        request = pb.RegisterParticipantRequest(
            name="acme",
            connection=pb.StaticConnection(target=company.process.address),
            descriptors=files_of(charges_pb2.DESCRIPTOR),
        )
        await coordinator.registry.RegisterParticipant(request)
        handle = coordinator.client.handle(saga, "s")
        await handle.abort("it moved")
        assert isinstance(await handle.wait(BOUND), Compensated)
        charge = company.charge("s", "charge1")
    assert charge is not None
    assert charge.refunded
