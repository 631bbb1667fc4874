"""The participants that a node knows, in memory, put together so that a call finds its instances without a search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from amends_coordinator.core.ids import Instant
from amends_coordinator.definitions.descriptors import Fingerprints, fingerprints_of
from amends_coordinator.definitions.errors import DescriptorError
from amends_coordinator.engine.announcements import Announced, StaticParticipant
from amends_coordinator.engine.connections import connection_from_bytes
from amends_coordinator.ports.ledger import InstanceRow, ParticipantRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amends_coordinator.ports.connections import StaticConnection

STATIC_ID = "static"
"""What the one instance of a static participant is called."""

FOREVER = Instant(2**62)
"""When the lease of a static participant ends."""


class KnownParticipants:
    """Participants, their instances and their descriptors. Changes nothing but itself; `index` after a change."""

    def __init__(self) -> None:
        self._participants: dict[str, ParticipantRow] = {}
        self._instances: dict[str, dict[str, InstanceRow]] = {}
        self._served_by_instance: dict[tuple[str, str], tuple[str, ...]] = {}
        self._by_service: dict[str, tuple[InstanceRow, ...]] = {}
        self._by_participant: dict[tuple[str, str], tuple[InstanceRow, ...]] = {}
        self._schemas: dict[str, FileDescriptorSet] = {}
        self._fingerprints: dict[str, Fingerprints] = {}

    def get(self, name: str) -> ParticipantRow | None:
        """The participant of this name."""
        return self._participants.get(name)

    def schema(self, name: str) -> FileDescriptorSet:
        """The descriptors of a participant that is known."""
        return self._schemas[name]

    def schemas(self, now: Instant) -> dict[str, FileDescriptorSet]:
        """The descriptors of every participant by its name; first those of participants with a living instance."""
        ordered = sorted(self._schemas, key=lambda name: (not self.lives(name, now), name))
        return {name: self._schemas[name] for name in ordered}

    def living_fingerprints(self, now: Instant) -> dict[str, Fingerprints]:
        """What every participant with a living instance holds, by its name. Made once, or the announcements that come
        together after a stop would take a time that grows with the square of their number.
        """
        living = [name for name in self._schemas if self.lives(name, now)]
        for name in living:
            if name not in self._fingerprints:
                self._fingerprints[name] = _fingerprints(self._schemas[name])
        return {name: self._fingerprints[name] for name in living}

    def instance(self, name: str, instance_id: str) -> InstanceRow | None:
        """One instance of a participant."""
        return self._instances.get(name, {}).get(instance_id)

    def instances_of(self, name: str) -> Sequence[InstanceRow]:
        """All instances of a participant, in the order of their ids."""
        rows = self._instances.get(name, {})
        return [rows[instance_id] for instance_id in sorted(rows)]

    def all_instances(self) -> Sequence[InstanceRow]:
        """All instances of everybody."""
        return [row for rows in self._instances.values() for row in rows.values()]

    def serving(self, service: str) -> Sequence[InstanceRow]:
        """All instances that serve a service, whether their lease holds or not, in a stable order."""
        return self._by_service.get(service, ())

    def serving_as(self, name: str, service: str) -> Sequence[InstanceRow]:
        """The instances of one participant that serve a service, as of `serving`."""
        return self._by_participant.get((name, service), ())

    def lives(self, name: str, now: Instant) -> bool:
        """Whether a participant is static or has an instance whose lease holds."""
        return any(row.lease_end_time > now for row in self._instances.get(name, {}).values())

    def connection(self, name: str) -> StaticConnection | None:
        """How a static participant is reached; None: there is none of this name."""
        instance = self.instance(name, STATIC_ID)
        return None if instance is None else instance.connection

    def static(self, name: str) -> StaticParticipant | None:
        """The static participant of this name."""
        connection = self.connection(name)
        if connection is None:
            return None
        return StaticParticipant(
            participant=name,
            services=self._participants[name].services,
            descriptors=self._schemas[name],
            connection=connection,
        )

    def announced(self, now: Instant) -> Sequence[Announced]:
        """All participants by name, those without a living instance too."""
        return [self.announced_one(self._participants[name], now) for name in sorted(self._participants)]

    def announced_one(self, participant: ParticipantRow, now: Instant) -> Announced:
        """One participant with its living instances, or with its connection."""
        if participant.connection is not None:
            return Announced(participant=participant, instances=(), connection=self.connection(participant.name))
        living = (row for row in self.instances_of(participant.name) if row.lease_end_time > now)
        return Announced(participant=participant, instances=tuple(living))

    def put(self, participant: ParticipantRow) -> None:
        """Add or replace a participant; a static one gets its only instance.

        Raises:
            DecodeError: its descriptors, or how it is reached, don't parse; nothing was changed.
        """
        how = None if participant.connection is None else connection_from_bytes(participant.connection)
        known = self._participants.get(participant.name)
        if known is None or known.descriptors != participant.descriptors:
            self._schemas[participant.name] = FileDescriptorSet.FromString(participant.descriptors)
            self._fingerprints.pop(participant.name, None)
        self._participants[participant.name] = participant
        if how is not None:
            instance = _static_instance(participant.name, how)
            self._instances[participant.name] = {STATIC_ID: instance}

    def put_instance(self, instance: InstanceRow, services: tuple[str, ...] | None = None) -> None:
        """Add or replace an instance. `services`: what it serves itself, which during a deployment isn't what the next
        one of its name does; None where only what was said last in its name is known.
        """
        self._instances.setdefault(instance.participant, {})[instance.instance_id] = instance
        if services is not None:
            self._served_by_instance[instance.participant, instance.instance_id] = services

    def drop_instance(self, name: str, instance_id: str) -> None:
        """Forget an instance."""
        del self._instances[name][instance_id]
        self._served_by_instance.pop((name, instance_id), None)

    def drop(self, name: str) -> None:
        """Forget a participant."""
        for instance_id in self._instances.pop(name, {}):
            self._served_by_instance.pop((name, instance_id), None)
        self._fingerprints.pop(name, None)
        del self._participants[name], self._schemas[name]

    def index(self) -> None:
        """Put the instances together by service."""
        by_service: dict[str, list[InstanceRow]] = {}
        by_participant: dict[tuple[str, str], list[InstanceRow]] = {}
        for name in sorted(self._participants):
            said_last = self._participants[name].services
            for row in self.instances_of(name):
                for service in self._served_by_instance.get((name, row.instance_id), said_last):
                    by_service.setdefault(service, []).append(row)
                    by_participant.setdefault((name, service), []).append(row)
        self._by_service = {service: tuple(rows) for service, rows in by_service.items()}
        self._by_participant = {place: tuple(rows) for place, rows in by_participant.items()}


def _fingerprints(schema: FileDescriptorSet) -> Fingerprints:
    try:
        return fingerprints_of(schema)
    except DescriptorError:  # what was announced was readable; somebody has damaged its row, and that is nobody else's
        return Fingerprints({}, {})


def _static_instance(name: str, connection: StaticConnection) -> InstanceRow:
    return InstanceRow(
        participant=name,
        instance_id=STATIC_ID,
        address=connection.target,
        capacity=connection.capacity,
        lease_end_time=FOREVER,
        connection=connection,
    )
