"""`RegistryService` over real gRPC: announcing, renewing, withdrawing, listing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from amends.v1 import registry_service_pb2 as pb
from tests.integration.api.conftest import LEASE_US, PAYLOAD_LIMIT_BYTES
from tests.integration.api.refusals import refused
from tests.unit.grpc_api.samples import NOW, SERVICE, other_file, scenario_files

if TYPE_CHECKING:
    from tests.integration.api.conftest import Served

Code = grpc.StatusCode


async def test_announced_renewed_listed_withdrawn(served: Served) -> None:
    """An announcement holds for its lease and is renewed by repeating it; withdrawing takes it out at once."""
    answer = await served.announce()
    assert answer.lease_timeout.ToMicroseconds() == LEASE_US
    assert answer.participant.instances[0].lease_end_time.ToMicroseconds() == NOW + LEASE_US
    served.clock.advance(10)
    await served.announce()
    listed = (await served.registry.ListParticipants(pb.ListParticipantsRequest())).participants
    assert [each.name for each in listed] == ["steps"]
    assert listed[0].services == [SERVICE]
    assert listed[0].create_time.ToMicroseconds() == NOW
    assert listed[0].instances[0].lease_end_time.ToMicroseconds() == NOW + 10 + LEASE_US
    withdrawal = pb.DeregisterParticipantRequest(name="steps", instance_id="i-1")
    await served.registry.DeregisterParticipant(withdrawal)
    await served.registry.DeregisterParticipant(withdrawal)
    listed = (await served.registry.ListParticipants(pb.ListParticipantsRequest())).participants
    assert not listed[0].instances


async def test_bad_announcement_names_every_fault(served: Served) -> None:
    """Every fault with its path, and nothing is announced."""
    request = pb.RegisterParticipantRequest(
        name="Steps", services=["a/b"], instance=pb.ParticipantInstance(address="unix:x", capacity=-1)
    )
    refusal = await refused(served.registry.RegisterParticipant(request))
    assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, "INVALID_REQUEST")
    assert refusal.paths == (
        "name",
        "services[0]",
        "instance.instance_id",
        "instance.address",
        "instance.capacity",
    )
    assert not (await served.registry.ListParticipants(pb.ListParticipantsRequest())).participants


def announcement(name: str = "other") -> pb.RegisterParticipantRequest:
    """A good announcement of another participant, without descriptors."""
    return pb.RegisterParticipantRequest(
        name=name, services=[SERVICE], instance=pb.ParticipantInstance(instance_id="i-1", address="127.0.0.1:2")
    )


async def test_contradiction_is_a_failed_precondition(served: Served) -> None:
    """Two participants may not announce one service with different descriptors; the same ones are welcome."""
    await served.announce()
    request = announcement()
    request.descriptors.CopyFrom(other_file())
    refusal = await refused(served.registry.RegisterParticipant(request))
    assert (refusal.code, refusal.reason) == (Code.FAILED_PRECONDITION, "DESCRIPTOR_CONFLICT")
    request.descriptors.CopyFrom(scenario_files())
    await served.registry.RegisterParticipant(request)


async def test_missing_descriptors(served: Served) -> None:
    """A renewal of somebody unknown says so, so that the participant sends its descriptors; holes are named."""
    unknown = await refused(served.registry.RegisterParticipant(announcement()))
    assert (unknown.code, unknown.reason, unknown.resource) == (Code.NOT_FOUND, "PARTICIPANT_NOT_FOUND", "other")
    request = announcement()
    request.services.append("a.B")
    request.descriptors.CopyFrom(scenario_files())
    undescribed = await refused(served.registry.RegisterParticipant(request))
    assert (undescribed.reason, undescribed.paths) == ("INVALID_REQUEST", ("services[1]",))
    del request.services[1]
    for file in request.descriptors.file:
        file.dependency.append("not/there.proto")
    broken = await refused(served.registry.RegisterParticipant(request))
    assert (broken.reason, broken.paths) == ("INVALID_REQUEST", ("descriptors",))


async def test_descriptors_have_a_limit(served: Served) -> None:
    """Descriptors are a payload like any other."""
    request = announcement()
    request.descriptors.CopyFrom(scenario_files())
    request.descriptors.file[0].source_code_info.location.add(leading_comments="x" * PAYLOAD_LIMIT_BYTES)
    refusal = await refused(served.registry.RegisterParticipant(request))
    assert refusal.paths == ("descriptors",)


async def test_pages_by_name(served: Served) -> None:
    """Lists are by name, page by page."""
    for name in ("c", "a", "b"):
        request = announcement(name)
        request.descriptors.CopyFrom(scenario_files())
        await served.registry.RegisterParticipant(request)
    first = await served.registry.ListParticipants(pb.ListParticipantsRequest(page_size=2))
    token = first.next_page_token
    second = await served.registry.ListParticipants(pb.ListParticipantsRequest(page_size=2, page_token=token))
    assert [[each.name for each in page.participants] for page in (first, second)] == [["a", "b"], ["c"]]
    assert not second.next_page_token
    refusal = await refused(served.registry.ListParticipants(pb.ListParticipantsRequest(page_size=-1, page_token="!")))
    assert refusal.paths == ("page_size", "page_token")
