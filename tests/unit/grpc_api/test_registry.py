"""Participants by lease: who serves what just now, what a renewal costs, what is refused."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from amends_coordinator.core.ids import NodeId
from amends_coordinator.definitions.catalog import Catalog
from amends_coordinator.definitions.errors import DescriptorError
from amends_coordinator.engine.announcements import Announcement
from amends_coordinator.engine.registry import Registry
from amends_coordinator.engine.registry_errors import (
    DescriptorConflictError,
    UndescribedServicesError,
    UnknownParticipantError,
)
from amends_coordinator.ledger.memory import MemoryLedger
from amends_coordinator.ports.ledger import InstanceRow, LedgerUnavailableError, ParticipantRow
from tests.unit.engine.rig import Telemetry
from tests.unit.grpc_api.samples import SERVICE, ManualClock, other_file, scenario_files

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LEASE_US = 30_000_000


class CountingLedger(MemoryLedger):
    """The ledger in memory, which counts what the registry writes, and can be out of reach."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0
        self.out_of_reach = False

    async def put_participant(self, participant: ParticipantRow, instance: InstanceRow | None) -> None:
        """Count, then write."""
        if self.out_of_reach:
            raise LedgerUnavailableError("out of reach")
        self.written += 1
        await super().put_participant(participant, instance)


@dataclass
class Bench:
    """A registry with what it stands on."""

    ledger: CountingLedger
    clock: ManualClock
    telemetry: Telemetry
    registry: Registry

    async def restarted(self) -> Registry:
        """A registry that knows only what the ledger has."""
        registry = Registry(ledger=self.ledger, clock=self.clock, telemetry=self.telemetry, lease_us=LEASE_US)
        await registry.load()
        return registry

    def addresses(self, participant: str = "") -> list[str]:
        """Where the service is reached."""
        return [row.address for row in self.registry.instances(service=SERVICE, participant=participant)]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """An empty registry on an open ledger."""
    ledger, clock, telemetry = CountingLedger(), ManualClock(), Telemetry()
    await ledger.open(NodeId("n"), plans=Catalog().plan)
    registry = Registry(ledger=ledger, clock=clock, telemetry=telemetry, lease_us=LEASE_US)
    yield Bench(ledger, clock, telemetry, registry)
    await ledger.close()


def announcement(
    participant: str = "shop",
    instance: str = "i-1",
    *,
    files: FileDescriptorSet | None = None,
    services: tuple[str, ...] = (SERVICE,),
    address: str = "127.0.0.1:1",
) -> Announcement:
    """One instance, with the scenario's files unless others are given."""
    return Announcement(
        participant=participant,
        services=services,
        descriptors=scenario_files() if files is None else files,
        instance_id=instance,
        address=address,
        capacity=4,
    )


def renewal(participant: str = "shop", instance: str = "i-1") -> Announcement:
    """The same without descriptors."""
    return Announcement(
        participant=participant,
        services=(SERVICE,),
        descriptors=None,
        instance_id=instance,
        address="127.0.0.1:1",
        capacity=4,
    )


async def test_an_instance_is_found_while_its_lease_holds(bench: Bench) -> None:
    """An instance is called until its lease ends, not a moment longer."""
    await bench.registry.announce(announcement())
    bench.clock.advance(LEASE_US - 1)
    assert bench.addresses() == ["127.0.0.1:1"]
    bench.clock.advance(1)
    assert bench.addresses() == []
    assert bench.registry.participants()[0].instances == ()


def large_files(name: str) -> FileDescriptorSet:
    """Files of a participant's own, which take some milliseconds to look at."""
    file = FileDescriptorProto(name=f"{name}.proto", package=name, syntax="proto3")
    for number in range(200):
        message = file.message_type.add(name=f"Message{number}")
        for field in range(1, 11):
            message.field.add(name=f"field_{field}", number=field, type=9, label=1)
    file.service.add(name="Service")
    return FileDescriptorSet(file=[file])


async def test_the_fortieth_announcement_costs_what_the_first_one_does(bench: Bench) -> None:
    """L2: after a stop all participants come back together, and each is compared with all that are there already."""
    times_s: list[float] = []
    for number in range(40):
        name = f"p{number}"
        began_s = time.perf_counter()
        await bench.registry.announce(announcement(name, files=large_files(name), services=(f"{name}.Service",)))
        times_s.append(time.perf_counter() - began_s)
    first_s, last_s = sorted(times_s[:9])[4], sorted(times_s[-9:])[4]
    assert last_s < 3 * first_s


async def test_what_a_participant_serves_is_known_while_it_is_away(bench: Bench) -> None:
    """S4: what it has done is not handed to others to undo because it restarts; a coordinator that does still knows."""
    await bench.registry.announce(announcement())
    bench.clock.advance(LEASE_US)
    await bench.registry.withdraw("shop", "i-1")
    for registry in (bench.registry, await bench.restarted()):
        assert registry.serving(SERVICE) == []
        assert registry.may_serve("shop", SERVICE)
        assert not registry.may_serve("shop", "other.v1.Other")
        assert registry.may_serve("nobody", SERVICE)


async def test_a_renewal_keeps_the_descriptors_and_moves_the_lease(bench: Bench) -> None:
    """A renewal without descriptors keeps the old ones."""
    await bench.registry.announce(announcement())
    bench.clock.advance(LEASE_US // 2)
    announced = await bench.registry.announce(renewal())
    bench.clock.advance(LEASE_US - 1)
    assert bench.addresses() == ["127.0.0.1:1"]
    assert announced.participant.created_time < announced.participant.updated_time
    assert list(bench.registry.schemas()) == ["shop"]


async def test_a_renewal_is_cheap_and_a_restart_still_knows(bench: Bench) -> None:
    """Renewed after each third of its lease: every second renewal is written, and what is stored never runs out."""
    await bench.registry.announce(announcement())
    for _ in range(8):
        bench.clock.advance(LEASE_US // 3)
        await bench.registry.announce(announcement())
        again = await bench.restarted()
        assert all(each.instances for each in again.participants())
    assert bench.ledger.written == 5


async def test_what_changes_is_written_at_once(bench: Bench) -> None:
    """A moved instance is found at its new address, also after a crash."""
    await bench.registry.announce(announcement())
    await bench.registry.announce(announcement(address="127.0.0.1:2"))
    again = await bench.restarted()
    assert [row.address for row in again.instances(service=SERVICE, participant="")] == ["127.0.0.1:2"]


async def test_withdrawn_at_once(bench: Bench) -> None:
    """A withdrawn instance is called no more, also after a crash; withdrawing twice does no harm."""
    await bench.registry.announce(announcement())
    await bench.registry.withdraw("shop", "i-1")
    await bench.registry.withdraw("shop", "i-1")
    await bench.registry.withdraw("nobody", "i-1")
    assert bench.addresses() == []
    assert (await bench.restarted()).instances(service=SERVICE, participant="") == []


async def test_who_comes_and_goes_is_told(bench: Bench) -> None:
    """Telemetry hears of announcements, of those that a restart finds, and of those that take themselves out, once."""
    await bench.registry.announce(announcement())
    await bench.restarted()
    await bench.registry.withdraw("shop", "i-1")
    await bench.registry.withdraw("shop", "i-1")
    assert (bench.telemetry.announced, bench.telemetry.left) == (["i-1", "i-1"], ["i-1"])


async def test_instances_in_a_stable_order_and_by_participant(bench: Bench) -> None:
    """Two participants may serve one service with the same descriptors; a step may name which."""
    await bench.registry.announce(announcement("zoo", "i-9", address="127.0.0.1:9"))
    await bench.registry.announce(announcement("shop", "i-2", address="127.0.0.1:2"))
    await bench.registry.announce(announcement("shop", "i-1"))
    assert bench.addresses() == ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:9"]
    assert bench.addresses("zoo") == ["127.0.0.1:9"]
    assert bench.addresses("other") == []


async def test_during_a_deployment_each_process_is_called_for_what_it_serves_itself(bench: Bench) -> None:
    """L2: the old process and the new one renew in turns; calls of the new service never go to the old one, and it
    counts as served all the time.
    """
    files = scenario_files()
    files.file[-1].service.add(name="NewService")
    new = f"{files.file[-1].package}.NewService"
    old_process = announcement(instance="i-1", files=files)
    new_process = announcement(instance="i-2", files=files, services=(SERVICE, new), address="127.0.0.1:2")
    for each in (old_process, new_process, old_process, new_process, old_process):
        await bench.registry.announce(each)
        assert {row.instance_id for row in bench.registry.instances(service=new, participant="")} <= {"i-2"}
    assert bench.addresses() == ["127.0.0.1:1", "127.0.0.1:2"]
    assert bench.registry.may_serve("shop", new)
    await bench.registry.withdraw("shop", "i-2")
    assert not bench.registry.may_serve("shop", new)


async def test_contradicting_descriptors_are_refused(bench: Bench) -> None:
    """Two participants may not announce one service with different descriptors; nothing changes."""
    await bench.registry.announce(announcement())
    with pytest.raises(DescriptorConflictError, match=r"scenario/v1/scenario\.proto"):
        await bench.registry.announce(announcement("zoo", files=other_file()))
    assert [each.participant.name for each in bench.registry.participants()] == ["shop"]


async def test_one_that_is_gone_stands_in_nobodys_way(bench: Bench) -> None:
    """A participant without a living instance announces nothing; coming back, it meets the contradiction itself."""
    await bench.registry.announce(announcement())
    bench.clock.advance(LEASE_US)
    await bench.registry.announce(announcement("zoo", files=other_file()))
    with pytest.raises(DescriptorConflictError):
        await bench.registry.announce(renewal())
    assert list(bench.registry.schemas()) == ["zoo", "shop"]


async def test_a_deploy_replaces_its_own_descriptors(bench: Bench) -> None:
    """Within one participant new descriptors supersede the old ones."""
    await bench.registry.announce(announcement())
    await bench.registry.announce(announcement(files=other_file()))
    assert bench.registry.schemas()["shop"] == other_file()


async def test_what_can_not_be_described_is_refused(bench: Bench) -> None:
    """Every announced service is described, with everything it depends on."""
    with pytest.raises(UnknownParticipantError):
        await bench.registry.announce(renewal())
    with pytest.raises(UndescribedServicesError, match=r"a\.B"):
        await bench.registry.announce(announcement(services=(SERVICE, "a.B")))
    holes = FileDescriptorSet(file=[each for each in scenario_files().file if each.name.startswith("scenario")])
    holes.file[0].dependency.append("not/there.proto")
    with pytest.raises(DescriptorError, match=r"not/there\.proto"):
        await bench.registry.announce(announcement(files=holes))
    assert bench.registry.participants() == []


async def test_a_ledger_out_of_reach_changes_nothing(bench: Bench) -> None:
    """What a participant was told is durable (S11): refused is refused in memory too."""
    bench.ledger.out_of_reach = True
    with pytest.raises(LedgerUnavailableError):
        await bench.registry.announce(announcement())
    assert bench.addresses() == []
    bench.ledger.out_of_reach = False
    await bench.registry.announce(announcement())
    assert bench.addresses() == ["127.0.0.1:1"]


async def test_instances_long_gone_leave_the_ledger(bench: Bench) -> None:
    """Each start of a process is a new instance: those that are over must not pile up."""
    await bench.registry.announce(announcement(instance="i-1"))
    bench.clock.advance(2 * LEASE_US)
    await bench.registry.announce(announcement(instance="i-2"))
    _, instances = await bench.ledger.participants()
    assert [row.instance_id for row in instances] == ["i-2"]
