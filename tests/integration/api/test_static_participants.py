"""Static participants over real gRPC: what is said of them, what is shown of them, what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest

from amends.v1 import registry_service_pb2 as pb
from tests.integration.api.refusals import refused
from tests.unit.grpc_api.samples import SERVICE, scenario_files

if TYPE_CHECKING:
    from tests.integration.api.conftest import Served

Code = grpc.StatusCode


def known(name: str = "bank", /, **connection: object) -> pb.RegisterParticipantRequest:
    """A static participant with the scenario's descriptors."""
    how = pb.StaticConnection(**{"target": "bank.example:443", **connection})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] checked at run time
    return pb.RegisterParticipantRequest(name=name, connection=how, descriptors=scenario_files())


async def listed(served: Served) -> list[pb.Participant]:
    """All participants."""
    return list((await served.registry.ListParticipants(pb.ListParticipantsRequest())).participants)


async def test_made_known_listed_changed_taken_out(served: Served) -> None:
    """It has no lease; it is listed with its connection but for the values of headers; it is taken out as a whole."""
    answer = await served.registry.RegisterParticipant(known(headers={"x-tenant": "quiet"}, capacity=5))
    assert not answer.HasField("lease_timeout")
    assert answer.participant.services == [SERVICE]
    (shown,) = await listed(served)
    assert shown == answer.participant
    assert (dict(shown.connection.headers), shown.connection.capacity) == ({"x-tenant": ""}, 5)
    assert "quiet" not in str(shown)
    await served.registry.RegisterParticipant(known(target="dns:///bank.example:444"))
    assert [each.connection.target for each in await listed(served)] == ["dns:///bank.example:444"]
    for _ in range(2):
        await served.registry.DeregisterParticipant(pb.DeregisterParticipantRequest(name="bank"))
        assert await listed(served) == []


async def test_one_name_for_both_kinds(served: Served) -> None:
    """A sentence says which kind has the name; nothing is changed."""
    await served.announce()
    taken = await refused(served.registry.RegisterParticipant(known("steps")))
    assert (taken.code, taken.reason) == (Code.FAILED_PRECONDITION, "PARTICIPANT_KIND")
    whole = await refused(served.registry.DeregisterParticipant(pb.DeregisterParticipantRequest(name="steps")))
    assert (whole.code, whole.reason) == (Code.FAILED_PRECONDITION, "PARTICIPANT_KIND")
    await served.registry.RegisterParticipant(known())
    announcing = pb.RegisterParticipantRequest(
        name="bank",
        services=[SERVICE],
        instance=pb.ParticipantInstance(instance_id="i-1", address="127.0.0.1:1"),
        descriptors=scenario_files(),
    )
    other = await refused(served.registry.RegisterParticipant(announcing))
    assert (other.code, other.reason) == (Code.FAILED_PRECONDITION, "PARTICIPANT_KIND")
    assert [each.name for each in await listed(served)] == ["bank", "steps"]


async def test_every_fault_with_its_path(served: Served) -> None:
    """All that is wrong with a request at once; a header's value isn't repeated."""
    request = known(
        "Bank",
        target="unix:/run/bank",
        headers={
            "Upper": "1",
            "amends-key": "1",
            "te": "1",
            "x-bin": "1",
            "x-nul": "s3cret\0",
        },
        token_file="../token",
        capacity=-1,
    )
    request.services.append("a/b")
    request.instance.instance_id = "i-1"
    refusal = await refused(served.registry.RegisterParticipant(request))
    assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, "INVALID_REQUEST")
    assert refusal.paths == (
        "instance",
        "connection.target",
        "connection.token_file",
        "connection.token_file",
        "connection.headers['Upper']",
        "connection.headers['amends-key']",
        "connection.headers['te']",
        "connection.headers['x-bin']",
        "connection.headers['x-nul']",
        "connection.capacity",
        "name",
        "services[0]",
    )
    assert "s3cret" not in str(refusal)
    assert await listed(served) == []


@pytest.mark.parametrize(
    ("connection", "paths"),
    [
        ({"tls": pb.TlsOptions(ca_file="/etc/passwd")}, ("connection.tls.ca_file",)),
        ({"tls": pb.TlsOptions(client_certificate_file="c")}, ("connection.tls.client_key_file",)),
        ({"tls": pb.TlsOptions(client_key_file="k")}, ("connection.tls.client_certificate_file",)),
        ({"tls": pb.TlsOptions(server_name="a b")}, ("connection.tls.server_name",)),
        (
            {"tls": pb.TlsOptions(), "token_file": "t", "headers": {"authorization": "me"}},
            ("connection.headers['authorization']",),
        ),
        ({"headers": {f"x-{number}": "" for number in range(17)}}, ("connection.headers",)),
        ({"target": ""}, ("connection.target",)),
        ({"target": "dns:///bank.example:0"}, ("connection.target",)),
    ],
)
async def test_faults_of_a_connection(served: Served, connection: dict[str, object], paths: tuple[str, ...]) -> None:
    """What can't be is refused by its path before anything is read or called."""
    refusal = await refused(served.registry.RegisterParticipant(known(**connection)))
    assert (refusal.code, refusal.paths) == (Code.INVALID_ARGUMENT, paths)


async def test_secrets_that_are_not_there(served: Served) -> None:
    """A certificate or token that the coordinator can't read is a fault at once, not at the first call."""
    tls = pb.TlsOptions(ca_file="ca.pem", client_certificate_file="me.pem", client_key_file="me.key")
    refusal = await refused(served.registry.RegisterParticipant(known(tls=tls, token_file="token")))
    assert refusal.paths == (
        "connection.tls.ca_file",
        "connection.tls.client_certificate_file",
        "connection.tls.client_key_file",
        "connection.token_file",
    )


async def test_services_have_to_be_described(served: Served) -> None:
    """A named service that nothing describes is a fault by its path."""
    request = known()
    request.services.extend([SERVICE, "a.B"])
    refusal = await refused(served.registry.RegisterParticipant(request))
    assert (refusal.code, refusal.paths) == (Code.INVALID_ARGUMENT, ("services[1]",))


async def test_nobody_at_the_target(served: Served) -> None:
    """Asked what it serves, a target that isn't there is a sentence with what gRPC says about it."""
    request = pb.RegisterParticipantRequest(name="bank", connection=pb.StaticConnection(target="127.0.0.1:1"))
    refusal = await refused(served.registry.RegisterParticipant(request))
    assert (refusal.code, refusal.reason) == (Code.FAILED_PRECONDITION, "PARTICIPANT_NOT_DESCRIBED")
    assert "127.0.0.1:1 did not tell what it serves (UNAVAILABLE: " in refusal.message
