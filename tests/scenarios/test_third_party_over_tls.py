"""A third party that wants TLS, our certificate, a token and a header; and secrets that change while sagas run."""

from __future__ import annotations

import shutil
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import pytest

from acme.v1 import charges_pb2
from amends import Committed, Retry, Saga
from amends.v1 import registry_service_pb2 as pb
from amends.v1 import saga_pb2
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.certificates import HOST, Authority
from tests.scenarios.inside import inside
from tests.scenarios.test_third_party import ATTEMPT, BOUND, CreateCharge, RefundCharge, acme
from tests.unit.grpc_api.samples import files_of
from tests.waiting import pause

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from amends.handle import SagaHandle

pytestmark = pytest.mark.scenario

TOKEN = "s3cret-of-the-shop"
PATIENT = Retry(
    initial_delay=timedelta(milliseconds=20),
    maximum_delay=timedelta(milliseconds=200),
    total_timeout=timedelta(seconds=60),
    maximum_refusal_count=1_000,
)


def charging() -> Saga[ScenarioInput, None]:
    """A saga with one charge."""
    saga = Saga("secured", input=ScenarioInput)
    charge = CreateCharge(request_id=saga.key_uuid, account="good")
    step = saga.step("charge", charge, participant="acme", timeout=ATTEMPT, retry=PATIENT)
    step.compensated_by(RefundCharge(request_id=saga.action_key_uuid))
    return saga


def known(target: str) -> pb.RegisterParticipantRequest:
    """The company over TLS, with everything that it wants."""
    tls = pb.TlsOptions(
        ca_file="ca.pem", client_certificate_file="shop.pem", client_key_file="shop.key", server_name=HOST
    )
    connection = pb.StaticConnection(target=target, tls=tls, headers={"x-tenant": "shop"}, token_file="token")
    return pb.RegisterParticipantRequest(name="acme", connection=connection)


def stored(folder: Path) -> bytes:
    """All that the ledger has on its disk."""
    return b"".join(file.read_bytes() for file in folder.glob("ledger.db*"))


async def once(handle: SagaHandle[None], holds: Callable[[saga_pb2.Intent], bool]) -> None:
    """Wait until something holds for the charge's intent."""
    while not (intents := (await handle.get()).intents) or not holds(intents[0]):
        await pause()


async def test_over_tls_with_secrets_that_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The wrong authority: nothing is sent. The right one, put there while the saga waits, is used; so is the right
    token once the wrong one was refused. No secret shows anywhere.
    """
    right, wrong, secrets = Authority(tmp_path / "right"), Authority(tmp_path / "wrong"), tmp_path / "secrets"
    certificate, key = right.issue("server")
    secrets.mkdir()
    for file in right.issue("shop"):
        shutil.copy(file, secrets)
    shutil.copy(wrong.certificate, secrets / "ca.pem")
    (secrets / "token").write_text("outdated\n")
    wants = ("--expect", f"authorization=Bearer {TOKEN}", "--expect", "x-tenant=shop")
    secured = ("--certificate", str(certificate), "--key", str(key), "--client-ca", str(right.certificate), *wants)
    async with acme(tmp_path, *secured) as company, inside(tmp_path, secrets_dir=str(secrets)) as coordinator:
        request = known(company.process.address)
        with pytest.raises(grpc.aio.AioRpcError, match=r"UNAVAILABLE.*is TLS set as it wants it\?"):
            await coordinator.registry.RegisterParticipant(request)
        request.descriptors.CopyFrom(files_of(charges_pb2.DESCRIPTOR))
        await coordinator.registry.RegisterParticipant(request)
        handle = await coordinator.client.start(charging(), ScenarioInput(), saga_id="s")
        await once(handle, lambda charge: "does its certificate fit?" in charge.last_error)
        shutil.copy(right.certificate, secrets / "ca.pem")
        await once(handle, lambda charge: "who are you?" in charge.last_error)
        (secrets / "token").write_text(f"{TOKEN}\n")
        assert isinstance(await handle.wait(BOUND), Committed)
        assert company.charge("s", "charge") is not None
        request.ClearField("descriptors")
        shown = await coordinator.registry.RegisterParticipant(request)
        listed = await coordinator.registry.ListParticipants(pb.ListParticipantsRequest())
        assert shown.participant.services == ["acme.v1.ChargeService"]
    said = capsys.readouterr()
    assert TOKEN not in said.out + said.err + str(shown) + str(listed)
    assert TOKEN.encode() not in stored(tmp_path)
