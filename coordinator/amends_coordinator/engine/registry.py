"""The registry of participants: who serves what just now, and where; in memory for calls, in the ledger for restarts.

An announcement holds for a lease and is renewed by repeating it. A renewal that changes nothing moves the lease in
memory; the ledger hears of it only when half of what it has stored is over, so that a renewal is cheap and a
coordinator that is killed still knows its participants when it is back.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from amends_coordinator.core.ids import Instant
from amends_coordinator.definitions.descriptors import conflicts, services_of
from amends_coordinator.definitions.schema import Schema
from amends_coordinator.ports.ledger import InstanceRow, ParticipantRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from amends_coordinator.ports.clock import Clock
    from amends_coordinator.ports.ledger import Ledger
    from amends_coordinator.ports.telemetry import Telemetry


class RegistryError(Exception):
    """Root of what the registry raises; nothing was changed."""


class UnknownParticipantError(RegistryError):
    """The participant has never sent its descriptors. Announce it once with them."""

    def __init__(self, name: str) -> None:
        super().__init__(f"participant {name} is not known here; announce it with its descriptors")
        self.name = name


class UndescribedServicesError(RegistryError):
    """Services are announced that the descriptors don't describe. Send the files that define them."""

    def __init__(self, services: tuple[str, ...]) -> None:
        super().__init__(f"no descriptors for {', '.join(services)}; send the files that define them")
        self.services = services


class DescriptorConflictError(RegistryError):
    """Another participant announces a file, type or service of the same name with other content. Rename one of them."""

    def __init__(self, contradictions: list[str]) -> None:
        super().__init__("; ".join(contradictions))
        self.contradictions = tuple(contradictions)


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
class Announced:
    """A participant with its instances whose lease hasn't ended, in the order of their ids."""

    participant: ParticipantRow
    instances: tuple[InstanceRow, ...]


class Registry:
    """Holds announcements; the directory that calls are made by. To be used on one event loop."""

    def __init__(self, *, ledger: Ledger, clock: Clock, telemetry: Telemetry, lease_us: int) -> None:
        self.lease_us = lease_us
        self._ledger = ledger
        self._clock = clock
        self._telemetry = telemetry
        self._changing = asyncio.Lock()
        self._participants: dict[str, ParticipantRow] = {}
        self._instances: dict[str, dict[str, InstanceRow]] = {}
        self._stored_lease_ends: dict[tuple[str, str], Instant] = {}
        self._by_service: dict[str, tuple[InstanceRow, ...]] = {}
        self._schemas: dict[str, FileDescriptorSet] = {}

    async def load(self) -> None:
        """Read what the ledger has. To be called once, after the ledger is open and before the first call.

        Raises:
            LedgerUnavailableError: nothing was read.
        """
        participants, instances = await self._ledger.participants()
        for participant in participants:
            self._remember(participant)
        for instance in instances:
            self._instances.setdefault(instance.participant, {})[instance.instance_id] = instance
            self._stored_lease_ends[instance.participant, instance.instance_id] = instance.lease_end_time
        self._index()
        for announced in self.participants():
            for instance in announced.instances:
                self._telemetry.participant_announced(instance, announced.participant.services)

    async def announce(self, announcement: Announcement) -> Announced:
        """Add or renew one instance, and its participant. Safe to repeat.

        Raises:
            UnknownParticipantError: a renewal without descriptors of a participant that never sent any.
            UndescribedServicesError, DescriptorConflictError, DescriptorError: nothing was changed.
            LedgerUnavailableError: nothing was changed; repeat it.
        """
        async with self._changing:
            now = self._clock.now()
            # In a thread: a participant may bring many files, and sagas go on meanwhile. Under the lock nothing
            # changes.
            participant = await asyncio.to_thread(self._checked, announcement, now)
            instance = InstanceRow(
                participant=announcement.participant,
                instance_id=announcement.instance_id,
                address=announcement.address,
                capacity=announcement.capacity,
                lease_end_time=Instant(now + self.lease_us),
            )
            await self._forget_gone(now)
            if self._must_store(participant, instance, now):
                await self._ledger.put_participant(participant, instance)
                self._stored_lease_ends[instance.participant, instance.instance_id] = instance.lease_end_time
            self._remember(participant)
            self._instances.setdefault(participant.name, {})[instance.instance_id] = instance
            self._index()
            self._telemetry.participant_announced(instance, participant.services)
            return self._announced(participant, now)

    async def withdraw(self, participant: str, instance_id: str) -> None:
        """Take one instance out at once; nothing happens if it isn't there.

        Raises:
            LedgerUnavailableError: it may still be there; repeat it.
        """
        async with self._changing:
            if instance_id in self._instances.get(participant, {}):
                await self._remove(participant, instance_id)
                self._index()
                self._telemetry.participant_left(participant, instance_id)

    def participants(self) -> Sequence[Announced]:
        """All participants by name, those without a living instance too."""
        now = self._clock.now()
        return [self._announced(self._participants[name], now) for name in sorted(self._participants)]

    def schemas(self) -> dict[str, FileDescriptorSet]:
        """The descriptors of every participant by its name; first those of participants with a living instance."""
        now = self._clock.now()
        ordered = sorted(self._schemas, key=lambda name: (not self._lives(name, now), name))
        return {name: self._schemas[name] for name in ordered}

    def instances(self, *, service: str, participant: str) -> Sequence[InstanceRow]:
        """The instances that serve `service` and whose lease hasn't ended; of `participant` only, unless that is ""."""
        now = self._clock.now()
        return [
            row
            for row in self._by_service.get(service, ())
            if row.lease_end_time > now and (not participant or row.participant == participant)
        ]

    def _checked(self, announcement: Announcement, now: Instant) -> ParticipantRow:
        """The participant's row as it will be, if nothing contradicts it."""
        name = announcement.participant
        known = self._participants.get(name)
        if announcement.descriptors is None:
            if known is None:
                raise UnknownParticipantError(name)
            descriptors, schema = known.descriptors, self._schemas[name]
        else:
            schema = announcement.descriptors
            descriptors = schema.SerializeToString(deterministic=True)
        services = tuple(sorted(set(announcement.services)))
        # What a participant last announced may meanwhile contradict another one, if its lease was over in between.
        if known is None or descriptors != known.descriptors or not self._lives(name, now):
            _load(schema, services)
            self._refuse_conflicts(name, schema, now)
        elif services != known.services:
            _load(schema, services)
        return ParticipantRow(
            name=name,
            services=services,
            descriptors=descriptors,
            created_time=now if known is None else known.created_time,
            updated_time=now,
        )

    def _refuse_conflicts(self, name: str, schema: FileDescriptorSet, now: Instant) -> None:
        """Only participants with a living instance count: one that is gone for good must not stand in the way."""
        others = {other: held for other, held in self._schemas.items() if other != name and self._lives(other, now)}
        if contradictions := conflicts(others, schema):
            raise DescriptorConflictError(contradictions)

    def _must_store(self, participant: ParticipantRow, instance: InstanceRow, now: Instant) -> bool:
        """Whether more changed than the lease, or the lease that is stored is half over."""
        known = self._participants.get(participant.name)
        if known is None or replace(known, updated_time=participant.updated_time) != participant:
            return True
        before = self._instances.get(participant.name, {}).get(instance.instance_id)
        if before is None or replace(before, lease_end_time=instance.lease_end_time) != instance:
            return True
        return self._stored_lease_ends[instance.participant, instance.instance_id] - now < self.lease_us // 2

    async def _forget_gone(self, now: Instant) -> None:
        """Remove instances whose lease ended a whole lease ago: each start of a process makes a new one."""
        gone = [row for row in self._all_instances() if row.lease_end_time + self.lease_us <= now]
        for row in gone:
            await self._remove(row.participant, row.instance_id)

    async def _remove(self, participant: str, instance_id: str) -> None:
        await self._ledger.remove_instance(participant, instance_id)
        self._instances[participant].pop(instance_id)
        self._stored_lease_ends.pop((participant, instance_id), None)

    def _remember(self, participant: ParticipantRow) -> None:
        known = self._participants.get(participant.name)
        if known is None or known.descriptors != participant.descriptors:
            self._schemas[participant.name] = FileDescriptorSet.FromString(participant.descriptors)
        self._participants[participant.name] = participant

    def _lives(self, name: str, now: Instant) -> bool:
        return any(row.lease_end_time > now for row in self._instances.get(name, {}).values())

    def _announced(self, participant: ParticipantRow, now: Instant) -> Announced:
        rows = self._instances.get(participant.name, {})
        living = (rows[instance_id] for instance_id in sorted(rows) if rows[instance_id].lease_end_time > now)
        return Announced(participant=participant, instances=tuple(living))

    def _all_instances(self) -> Iterable[InstanceRow]:
        return [row for rows in self._instances.values() for row in rows.values()]

    def _index(self) -> None:
        """Put the instances together by service, so that a call finds them without a search."""
        by_service: dict[str, list[InstanceRow]] = {}
        for name in sorted(self._participants):
            rows = self._instances.get(name, {})
            for service in self._participants[name].services:
                by_service.setdefault(service, []).extend(rows[instance_id] for instance_id in sorted(rows))
        self._by_service = {service: tuple(rows) for service, rows in by_service.items()}


def _load(files: FileDescriptorSet, services: Iterable[str]) -> None:
    """Load every method of these services, so that a schema with a hole is refused now and not at the first call.

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
                for method in service.method:
                    schema.method(f"{full_name}/{method.name}")
