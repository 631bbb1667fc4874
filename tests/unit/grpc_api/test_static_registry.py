"""Static participants in the registry: they outlive restarts, move, share a service, and share no name."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet, ServiceDescriptorProto

from amends_coordinator.definitions.errors import DescriptorError
from amends_coordinator.engine.announcements import StaticParticipant
from amends_coordinator.engine.registry_errors import (
    DescriptorConflictError,
    NameTakenError,
    NotStaticError,
    UnclearServicesError,
    UndescribedServicesError,
)
from amends_coordinator.ports.connections import StaticConnection, TlsOptions
from tests.unit.grpc_api.samples import SERVICE, files_of, other_file, scenario_files
from tests.unit.grpc_api.test_registry import LEASE_US, Bench, announcement, bench
from typed.v1 import typed_pb2

__all__ = ["bench"]

CONNECTION = StaticConnection(
    target="dns:///bank.example:443",
    tls=TlsOptions(ca_file="ca.pem", client_certificate_file="me.pem", client_key_file="me.key", server_name="bank"),
    headers=(("x-a", "1"), ("x-b", "2")),
    token_file="token",
    capacity=7,
)


def static(name: str = "bank", *, connection: StaticConnection = CONNECTION) -> StaticParticipant:
    """A static participant that serves the scenario's service."""
    return StaticParticipant(participant=name, services=(), descriptors=scenario_files(), connection=connection)


async def test_static_participants_outlive_restarts(bench: Bench) -> None:
    """Known as it was, for ever, with everything that says how it is reached; repeating changes nothing else."""
    await bench.registry.put_static(static())
    bench.clock.advance(1_000 * LEASE_US)
    await bench.registry.put_static(static())
    again = await bench.restarted()
    (row,) = again.instances(service=SERVICE, participant="bank")
    assert (row.address, row.capacity, row.connection) == ("dns:///bank.example:443", 7, CONNECTION)
    (listed,) = again.participants()
    assert (listed.instances, listed.connection, listed.participant.services) == ((), CONNECTION, (SERVICE,))
    assert listed.participant.created_time < listed.participant.updated_time


async def test_a_static_participant_moves(bench: Bench) -> None:
    """Added again with another target, it is found there and nowhere else."""
    await bench.registry.put_static(static())
    await bench.registry.put_static(static(connection=replace(CONNECTION, target="127.0.0.1:9")))
    assert bench.addresses("bank") == ["127.0.0.1:9"]
    assert [row.address for row in (await bench.restarted()).instances(service=SERVICE, participant="")] == [
        "127.0.0.1:9"
    ]


async def test_a_static_and_an_announcing_one_serve_one_service(bench: Bench) -> None:
    """Two participants may serve one service, whatever kind they are of; a step may name which."""
    await bench.registry.announce(announcement("shop"))
    await bench.registry.put_static(static())
    assert bench.addresses() == ["dns:///bank.example:443", "127.0.0.1:1"]
    assert bench.addresses("shop") == ["127.0.0.1:1"]


async def test_one_name_for_both_kinds_is_refused(bench: Bench) -> None:
    """A process can't slip under a static participant's name, nor the other way round while a process lives."""
    await bench.registry.put_static(static("bank"))
    with pytest.raises(NameTakenError, match=r"participant bank is static"):
        await bench.registry.announce(announcement("bank"))
    await bench.registry.announce(announcement("shop"))
    with pytest.raises(NameTakenError, match=r"participant shop announces itself"):
        await bench.registry.put_static(static("shop"))
    with pytest.raises(NotStaticError, match=r"participant shop announces itself"):
        await bench.registry.remove_static("shop")
    bench.clock.advance(LEASE_US)
    await bench.registry.put_static(static("shop"))
    _, instances = await bench.ledger.participants()
    assert instances == []


async def test_removed_as_a_whole(bench: Bench) -> None:
    """What is removed is called no more, also after a restart; its name is free, and removing again is harmless."""
    await bench.registry.put_static(static())
    await bench.registry.withdraw("bank", "static")
    assert bench.addresses() != []
    await bench.registry.remove_static("bank")
    await bench.registry.remove_static("bank")
    assert (bench.addresses(), bench.registry.participants(), bench.registry.schemas()) == ([], [], {})
    assert (await bench.restarted()).participants() == []
    await bench.registry.announce(announcement("bank"))


async def test_what_contradicts_is_refused(bench: Bench) -> None:
    """A static participant counts as living: nobody may announce its types with other content, nor it theirs."""
    await bench.registry.put_static(static())
    with pytest.raises(DescriptorConflictError, match=r"participant 'bank'"):
        await bench.registry.announce(announcement("zoo", files=other_file()))
    with pytest.raises(DescriptorConflictError, match=r"participant 'bank'"):
        await bench.registry.put_static(replace(static("other"), descriptors=other_file()))
    assert [each.participant.name for each in bench.registry.participants()] == ["bank"]


async def test_a_name_that_protobuf_would_not_have_is_refused(bench: Bench) -> None:
    """What a target calls its services is listed and logged; also one that has no methods."""
    service = ServiceDescriptorProto(name="Desk\x1b[2J" + "x" * 10_000)
    file = FileDescriptorProto(name="desk.proto", package="desk", service=[service])
    with pytest.raises(DescriptorError) as caught:
        await bench.registry.put_static(replace(static(), services=(), descriptors=FileDescriptorSet(file=[file])))
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 1_000
    assert bench.registry.participants() == []


async def test_what_is_not_described_is_refused(bench: Bench) -> None:
    """Named services have to be described, and something has to be."""
    with pytest.raises(UndescribedServicesError, match=r"a\.B"):
        await bench.registry.put_static(replace(static(), services=("a.B",)))
    messages_only = files_of(typed_pb2.DESCRIPTOR)
    for file in messages_only.file:
        file.ClearField("service")
    with pytest.raises(UnclearServicesError, match="describe no service"):
        await bench.registry.put_static(replace(static(), descriptors=messages_only))
    crowded = scenario_files()
    crowded.file[-1].service.extend(ServiceDescriptorProto(name=f"S{number}") for number in range(64))
    with pytest.raises(UnclearServicesError, match="describe 65 services; name those"):
        await bench.registry.put_static(replace(static(), descriptors=crowded))
    assert bench.registry.participants() == []
