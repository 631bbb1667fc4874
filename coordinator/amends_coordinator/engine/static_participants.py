"""Makes static participants known: checks how they are reached, and asks them what they serve."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amends_coordinator.engine.announcements import StaticParticipant
from amends_coordinator.engine.registry_errors import UnusableConnectionError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from amends_coordinator.engine.announcements import Announced
    from amends_coordinator.engine.registry import Registry
    from amends_coordinator.ports.connections import StaticConnection
    from amends_coordinator.ports.describing import Describing


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticRequest:
    """A static participant as somebody asks for it. No `services`: all that are described; `descriptors` None: the
    target is asked for them.
    """

    participant: str
    services: tuple[str, ...]
    descriptors: FileDescriptorSet | None
    connection: StaticConnection


class StaticParticipants:
    """Adds static participants to a registry."""

    def __init__(self, *, registry: Registry, describing: Describing) -> None:
        self._registry = registry
        self._describing = describing

    async def add(self, request: StaticRequest) -> Announced:
        """Add a static participant, or change one. Safe to repeat.

        Raises:
            UnusableConnectionError: a secret isn't there or is none; nothing was changed.
            NotDescribedError: the target doesn't say what it serves; nothing was changed.
            UndescribedServicesError, UnclearServicesError: nothing was changed.
            DescriptorConflictError, DescriptorError: nothing was changed.
            NameTakenError: a participant of this name announces itself.
            LedgerUnavailableError: nothing was changed; repeat it.
        """
        self._registry.require_name_for_static(request.participant)
        if faults := await asyncio.to_thread(self._describing.faults, request.connection):
            raise UnusableConnectionError(faults)
        descriptors = request.descriptors
        if descriptors is None:
            descriptors = await self._describing.describe(request.connection, request.services)
        return await self._registry.put_static(
            StaticParticipant(
                participant=request.participant,
                services=request.services,
                descriptors=descriptors,
                connection=request.connection,
            )
        )
