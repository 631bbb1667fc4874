"""The types that this process knows just now: its own, the participants' and those of the definitions.

A participant that is alive comes before one that is gone, and both before the definitions, the newest of which come
first: so a file that grew over the years is served as it is now, and types that only an old definition still has are
found too. The ledger's definitions are read when something isn't found elsewhere, each of them once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from amends_coordinator.definitions.compiled import parse_definition
from amends_coordinator.definitions.descriptors import set_digest
from amends_coordinator.definitions.errors import DescriptorError
from amends_coordinator.definitions.type_index import FileIndex, TypeIndex

if TYPE_CHECKING:
    from amends_coordinator.core.definition import StoredDefinition
    from amends_coordinator.core.ids import DefinitionVersion
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
        self._read: set[tuple[str, DefinitionVersion]] = set()
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
            # One by one, and each is told as read only then: whoever asked may hang up in between.
            for stored in reversed(await self._unread()):
                digest, index = await asyncio.to_thread(_indexed, stored)
                self._keep(digest, index)
                self._read.add((stored.name, stored.version))
        return self.at_hand()

    def _index_of(self, participant: str, schema: FileDescriptorSet) -> FileIndex:
        kept = self._of_participants.get(participant)
        return kept[1] if kept is not None and kept[0] is schema else FileIndex.of(schema)

    async def _unread(self) -> list[StoredDefinition]:
        """The newest definitions that haven't been read, at most as many as are kept; newest first."""
        unread: list[StoredDefinition] = []
        before = None
        # Once some have been read there is mostly nothing new, and a definition with its descriptors is no small thing.
        limit = 1 if self._read else PIECE
        while len(unread) < self._capacity:
            page = await self._ledger.list_definitions(limit=limit, before=before)
            fresh = [stored for stored in page.definitions if (stored.name, stored.version) not in self._read]
            unread += fresh
            before, limit = page.next, PIECE
            if before is None or not fresh:
                break
        return unread

    def _keep(self, digest: str, index: FileIndex) -> None:
        self._of_definitions.setdefault(digest, index)
        self._of_definitions.move_to_end(digest)
        if len(self._of_definitions) > self._capacity:
            self._of_definitions.popitem(last=False)


def _indexed(stored: StoredDefinition) -> tuple[str, FileIndex]:
    """The types of a definition and their fingerprint. One that is damaged has none: who asks for it itself is told."""
    try:
        descriptors = parse_definition(stored).descriptors
    except DescriptorError:
        descriptors = FileDescriptorSet()
    return set_digest(descriptors), FileIndex.of(descriptors)
