"""The types that this process knows just now: its own, the participants' and those of the definitions.

A participant that is alive comes before one that is gone, and both before the definitions, the newest of which come
first: so a file that grew over the years is served as it is now, and types that only an old definition still has are
found too. The ledger's definitions are read when something isn't found elsewhere, each of them once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

from amends_coordinator.definitions.compiled import parse_definition
from amends_coordinator.definitions.descriptors import set_digest
from amends_coordinator.definitions.errors import DescriptorError
from amends_coordinator.definitions.type_index import FileIndex, TypeIndex

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from amends_coordinator.core.definition import StoredDefinition
    from amends_coordinator.core.ids import DefinitionVersion, Instant
    from amends_coordinator.engine.registry import Registry
    from amends_coordinator.ports.ledger import Ledger

PIECE = 16
"""Definitions that are read at once: so many sets of descriptors are in memory."""

CAPACITY = 256
"""Different sets of descriptors of definitions that are kept; most definitions of a service share theirs."""


class KnownTypes:
    """Where reflection looks. To be used on one event loop.

    Args:
        own: this process' files.
        registry: knows the participants.
        ledger: has the definitions.
        capacity: how many different sets of descriptors of definitions are kept.
    """

    def __init__(self, own: FileIndex, *, registry: Registry, ledger: Ledger, capacity: int = CAPACITY) -> None:
        self._own, self._registry, self._ledger, self._capacity = own, registry, ledger, capacity
        self._of_participants: dict[str, tuple[FileDescriptorSet, FileIndex]] = {}
        self._of_definitions: OrderedDict[str, FileIndex] = OrderedDict()
        self._newest_read: tuple[Instant, str, DefinitionVersion] | None = None
        self._reading = asyncio.Lock()

    def at_hand(self) -> TypeIndex:
        """What is known without asking anybody."""
        schemas = self._registry.schemas()
        self._of_participants = {name: (schema, self._index_of(name, schema)) for name, schema in schemas.items()}
        participants = (index for _, index in self._of_participants.values())
        return TypeIndex((self._own, *participants, *reversed(self._of_definitions.values())))

    async def with_definitions(self) -> TypeIndex:
        """The same, after definitions that came since the last time have been read.

        Raises:
            LedgerUnavailableError: they can't be read.
        """
        async with self._reading:
            for stored in reversed(await self._unread()):
                await asyncio.to_thread(self._keep, stored)
        return self.at_hand()

    def _index_of(self, participant: str, schema: FileDescriptorSet) -> FileIndex:
        kept = self._of_participants.get(participant)
        return kept[1] if kept is not None and kept[0] is schema else FileIndex.of(schema)

    async def _unread(self) -> list[StoredDefinition]:
        """The definitions that are newer than the newest that was read, at most as many as are kept; newest first."""
        unread: list[StoredDefinition] = []
        before = None
        while len(unread) < self._capacity:
            page = await self._ledger.list_definitions(limit=PIECE, before=before)
            for stored in page.definitions:
                if _position(stored) == self._newest_read:
                    return self._read_up_to(unread)
                unread.append(stored)
            before = page.next
            if before is None:
                break
        return self._read_up_to(unread)

    def _read_up_to(self, unread: list[StoredDefinition]) -> list[StoredDefinition]:
        if unread:
            self._newest_read = _position(unread[0])
        return unread

    def _keep(self, stored: StoredDefinition) -> None:
        try:
            descriptors = parse_definition(stored).descriptors
        except DescriptorError:  # whoever asks for the definition itself is told
            return
        digest = set_digest(descriptors)
        if digest not in self._of_definitions:
            self._of_definitions[digest] = FileIndex.of(descriptors)
        self._of_definitions.move_to_end(digest)
        if len(self._of_definitions) > self._capacity:
            self._of_definitions.popitem(last=False)


def _position(stored: StoredDefinition) -> tuple[Instant, str, DefinitionVersion]:
    return (stored.created_time, stored.name, stored.version)
