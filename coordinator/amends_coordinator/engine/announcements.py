"""What participants say of themselves, or what is said of static ones, as values; and whether it makes sense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from amends_coordinator.definitions.descriptors import is_of_every_server, services_of
from amends_coordinator.definitions.schema import Schema
from amends_coordinator.engine.registry_errors import UnclearServicesError, UndescribedServicesError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amends_coordinator.ports.connections import StaticConnection
    from amends_coordinator.ports.ledger import InstanceRow, ParticipantRow


MOST_SERVICES = 64
"""So many services are taken without being named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """One instance of a participant, and what it serves. `descriptors` None: as announced before."""

    participant: str
    services: tuple[str, ...]
    descriptors: FileDescriptorSet | None
    instance_id: str
    address: str
    capacity: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticParticipant:
    """A participant that doesn't announce itself, and how it is reached. No `services`: all that are described."""

    participant: str
    services: tuple[str, ...]
    descriptors: FileDescriptorSet
    connection: StaticConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """A participant with its instances whose lease hasn't ended, in the order of their ids. A static one has a
    `connection` instead of instances.
    """

    participant: ParticipantRow
    instances: tuple[InstanceRow, ...]
    connection: StaticConnection | None = None


def steps_services(files: FileDescriptorSet) -> tuple[str, ...]:
    """All services in these files that a saga may call.

    Raises:
        DescriptorError: the files aren't readable.
        UnclearServicesError: there is none, or there are too many.
    """
    found = tuple(sorted(name for name in services_of(files) if not is_of_every_server(name)))
    if not 0 < len(found) <= MOST_SERVICES:
        raise UnclearServicesError(len(found))
    return found


def load_services(files: FileDescriptorSet, services: Iterable[str]) -> None:
    """Load every method of these services, so that a schema with a hole is refused now and not at the first call, and
    so is a name that protobuf wouldn't have.

    Raises:
        UndescribedServicesError, DescriptorError.
    """
    if missing := tuple(sorted(set(services) - services_of(files))):
        raise UndescribedServicesError(missing)
    schema, wanted = Schema(files), set(services)
    for file in files.file:
        for service in file.service:
            full_name = f"{file.package}.{service.name}" if file.package else service.name
            if full_name in wanted:
                schema.service(full_name)
                for method in service.method:
                    schema.method(f"{full_name}/{method.name}")
