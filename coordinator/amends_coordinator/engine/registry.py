"""The registry of participants: who serves what just now, and where; in memory for calls, in the ledger for restarts.

An announcement holds for a lease and is renewed by repeating it. A renewal that changes nothing moves the lease in
memory; the ledger hears of it only when half of what it has stored is over, so that a renewal is cheap and a
coordinator that is killed still knows its participants when it is back.

A static participant has one instance, whose lease never ends and which stands nowhere but with the participant.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from amends_coordinator.core.ids import Instant
from amends_coordinator.definitions.descriptors import conflicts, fingerprints_of
from amends_coordinator.engine.announcements import load_services, steps_services
from amends_coordinator.engine.connections import connection_to_bytes
from amends_coordinator.engine.known_participants import STATIC_ID, KnownParticipants
from amends_coordinator.engine.registry_errors import (
    DescriptorConflictError,
    NameTakenError,
    NotStaticError,
    UnknownParticipantError,
)
from amends_coordinator.ports.ledger import InstanceRow, ParticipantRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from amends_coordinator.engine.announcements import Announced, Announcement, StaticParticipant
    from amends_coordinator.ports.clock import Clock
    from amends_coordinator.ports.ledger import Ledger
    from amends_coordinator.ports.telemetry import Telemetry


class Registry:
    """Holds announcements; the directory that calls are made by. To be used on one event loop."""

    def __init__(self, *, ledger: Ledger, clock: Clock, telemetry: Telemetry, lease_us: int) -> None:
        self.lease_us = lease_us
        self._ledger = ledger
        self._clock = clock
        self._telemetry = telemetry
        self._changing = asyncio.Lock()
        self._known = KnownParticipants()
        self._stored_lease_ends: dict[tuple[str, str], Instant] = {}

    async def load(self) -> None:
        """Read what the ledger has. To be called once, after the ledger is open and before the first call.

        A participant whose row can't be read is told of, and is unknown until it is announced or added again.

        Raises:
            LedgerUnavailableError: nothing was read.
        """
        participants, instances = await self._ledger.participants()
        for participant in participants:
            try:
                self._known.put(participant)
            except DecodeError as error:
                self._telemetry.participant_unreadable(participant.name, error)
        for instance in instances:
            if self._known.get(instance.participant) is not None:
                self._known.put_instance(instance)
                self._stored_lease_ends[instance.participant, instance.instance_id] = instance.lease_end_time
        self._known.index()
        now = self._clock.now()
        for announced in self._known.announced(now):
            self._tell(announced.participant, now)

    async def announce(self, announcement: Announcement) -> Announced:
        """Add or renew one instance, and its participant. Safe to repeat.

        Raises:
            UnknownParticipantError: a renewal without descriptors of a participant that never sent any.
            UndescribedServicesError, DescriptorConflictError, DescriptorError: nothing was changed.
            NameTakenError: a static participant has this name.
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
            self._known.put(participant)
            self._known.put_instance(instance, participant.services)
            self._known.index()
            self._telemetry.participant_announced(instance, participant.services)
            return self._known.announced_one(participant, now)

    async def withdraw(self, participant: str, instance_id: str) -> None:
        """Take one instance out at once; nothing happens if it isn't there, or if the participant is static.

        Raises:
            LedgerUnavailableError: it may still be there; repeat it.
        """
        async with self._changing:
            known = self._known.instance(participant, instance_id)
            if known is not None and known.connection is None:
                await self._remove(participant, instance_id)
                self._known.index()
                self._telemetry.participant_left(participant, instance_id)

    async def put_static(self, static: StaticParticipant) -> Announced:
        """Add a static participant, or change it. Safe to repeat.

        Raises:
            NameTakenError: a participant of this name announces itself.
            UndescribedServicesError, UnclearServicesError: nothing was changed.
            DescriptorConflictError, DescriptorError: nothing was changed.
            LedgerUnavailableError: nothing was changed; repeat it.
        """
        async with self._changing:
            now = self._clock.now()
            participant = await asyncio.to_thread(self._checked_static, static, now)
            await self._ledger.put_participant(participant, None)
            self._forget_stored(participant.name)
            self._known.put(participant)
            self._known.index()
            self._tell(participant, now)
            return self._known.announced_one(participant, now)

    async def remove_static(self, participant: str) -> None:
        """Take a static participant out; nothing happens if nobody has this name.

        Raises:
            NotStaticError: it announces itself.
            LedgerUnavailableError: it may still be there; repeat it.
        """
        async with self._changing:
            known = self._known.get(participant)
            if known is None:
                return
            if known.connection is None:
                raise NotStaticError(participant)
            await self._ledger.remove_participant(participant)
            self._known.drop(participant)
            self._known.index()
            self._telemetry.participant_left(participant, STATIC_ID)

    def require_name_for_static(self, name: str) -> None:
        """Whether a static participant may have this name.

        Raises:
            NameTakenError: a participant that announces itself has it, and lives.
        """
        known = self._known.get(name)
        if known is not None and known.connection is None and self._known.lives(name, self._clock.now()):
            raise NameTakenError(name, is_static=False)

    def static(self, name: str) -> StaticParticipant | None:
        """The static participant of this name, as it is known."""
        return self._known.static(name)

    def participants(self) -> Sequence[Announced]:
        """All participants by name, those without a living instance too."""
        return self._known.announced(self._clock.now())

    def schemas(self) -> dict[str, FileDescriptorSet]:
        """The descriptors of every participant by its name; first those of participants with a living instance."""
        return self._known.schemas(self._clock.now())

    def serving(self, service: str) -> Sequence[str]:
        """See `ports.directory.Directory.serving`."""
        now = self._clock.now()
        rows = self._known.serving(service)
        return list(dict.fromkeys(row.participant for row in rows if row.lease_end_time > now))

    def may_serve(self, participant: str, service: str) -> bool:
        """See `ports.directory.Directory.may_serve`."""
        known = self._known.get(participant)
        return known is None or service in known.services or participant in self.serving(service)

    def instances(self, *, service: str, participant: str) -> Sequence[InstanceRow]:
        """See `ports.directory.Directory.instances`."""
        now = self._clock.now()
        rows = self._known.serving_as(participant, service) if participant else self._known.serving(service)
        return [row for row in rows if row.lease_end_time > now]

    def _checked(self, announcement: Announcement, now: Instant) -> ParticipantRow:
        """The participant's row as it will be, if nothing contradicts it."""
        name = announcement.participant
        known = self._known.get(name)
        if known is not None and known.connection is not None:
            raise NameTakenError(name, is_static=True)
        if announcement.descriptors is None:
            if known is None:
                raise UnknownParticipantError(name)
            descriptors, schema = known.descriptors, self._known.schema(name)
        else:
            schema = announcement.descriptors
            descriptors = schema.SerializeToString(deterministic=True)
        services = tuple(sorted(set(announcement.services)))
        # What a participant last announced may meanwhile contradict another one, if its lease was over in between.
        if known is None or descriptors != known.descriptors or not self._known.lives(name, now):
            load_services(schema, services)
            self._refuse_conflicts(name, schema, now)
        elif services != known.services:
            load_services(schema, services)
        return ParticipantRow(
            name=name,
            services=services,
            descriptors=descriptors,
            created_time=now if known is None else known.created_time,
            updated_time=now,
        )

    def _checked_static(self, static: StaticParticipant, now: Instant) -> ParticipantRow:
        """The static participant's row as it will be, if nothing contradicts it."""
        name = static.participant
        self.require_name_for_static(name)
        services = tuple(sorted(set(static.services))) or steps_services(static.descriptors)
        load_services(static.descriptors, services)
        self._refuse_conflicts(name, static.descriptors, now)
        known = self._known.get(name)
        return ParticipantRow(
            name=name,
            services=services,
            descriptors=static.descriptors.SerializeToString(deterministic=True),
            created_time=now if known is None else known.created_time,
            updated_time=now,
            connection=connection_to_bytes(static.connection),
        )

    def _refuse_conflicts(self, name: str, schema: FileDescriptorSet, now: Instant) -> None:
        """Only participants with a living instance count: one that is gone for good must not stand in the way."""
        others = {other: held for other, held in self._known.living_fingerprints(now).items() if other != name}
        if contradictions := conflicts(others, fingerprints_of(schema)):
            raise DescriptorConflictError(contradictions)

    def _must_store(self, participant: ParticipantRow, instance: InstanceRow, now: Instant) -> bool:
        """Whether more changed than the lease, or the lease that is stored is half over."""
        known = self._known.get(participant.name)
        if known is None or replace(known, updated_time=participant.updated_time) != participant:
            return True
        before = self._known.instance(participant.name, instance.instance_id)
        if before is None or replace(before, lease_end_time=instance.lease_end_time) != instance:
            return True
        return self._stored_lease_ends[instance.participant, instance.instance_id] - now < self.lease_us // 2

    async def _forget_gone(self, now: Instant) -> None:
        """Remove instances whose lease ended a whole lease ago: each start of a process makes a new one."""
        gone = [row for row in self._known.all_instances() if row.lease_end_time + self.lease_us <= now]
        for row in gone:
            await self._remove(row.participant, row.instance_id)

    async def _remove(self, participant: str, instance_id: str) -> None:
        await self._ledger.remove_instance(participant, instance_id)
        self._known.drop_instance(participant, instance_id)
        self._stored_lease_ends.pop((participant, instance_id), None)

    def _forget_stored(self, participant: str) -> None:
        """A participant that became static has no instances in the ledger any more."""
        for row in self._known.instances_of(participant):
            self._stored_lease_ends.pop((participant, row.instance_id), None)

    def _tell(self, participant: ParticipantRow, now: Instant) -> None:
        for row in self._known.instances_of(participant.name):
            if row.lease_end_time > now:
                self._telemetry.participant_announced(row, participant.services)
