"""The definitions that this process has compiled: the most recently used ones, within a bound."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from amends_coordinator.definitions.compiled import (
    DEFAULT_LEDGER_NAME,
    CompiledDefinition,
    compile_definition,
    parse_definition,
)
from amends_coordinator.definitions.descriptors import set_digest
from amends_coordinator.definitions.schema import Schema

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from amends_coordinator.core.definition import StoredDefinition
    from amends_coordinator.core.ids import DefinitionVersion
    from amends_coordinator.core.plan import Plan

DEFAULT_CAPACITY = 1_000


class Catalog:
    """Compiled definitions by name and version. May be used from several threads.

    What falls out is compiled again when it is asked for; a definition never changes, so nothing can go stale.
    Definitions with the same descriptors share one pool, for as long as one of them is in use.

    Args:
        ledger_name: the ledger's name; keys in UUID form depend on it.
        capacity: how many definitions are kept compiled.
    """

    def __init__(self, *, ledger_name: str = DEFAULT_LEDGER_NAME, capacity: int = DEFAULT_CAPACITY) -> None:
        self._ledger_name = ledger_name
        self._capacity = capacity
        self._kept: OrderedDict[tuple[str, DefinitionVersion], CompiledDefinition] = OrderedDict()
        self._schemas: WeakValueDictionary[str, Schema] = WeakValueDictionary()
        self._lock = threading.Lock()
        self._compiling = threading.Lock()

    def compiled(self, stored: StoredDefinition) -> CompiledDefinition:
        """The compiled form of a stored definition.

        Raises:
            DescriptorError: the stored bytes are not a resolved definition of this release.
        """
        found = self.find(stored.name, stored.version)
        if found is not None:
            return found
        # Whoever asks for what is kept never waits for this: a large schema takes its time, and the event loop asks.
        with self._compiling:
            found = self.find(stored.name, stored.version)
            if found is None:
                schema = self._schema(parse_definition(stored).descriptors)
                found = compile_definition(stored, ledger_name=self._ledger_name, schema=schema)
                self._keep(stored, found)
            return found

    def find(self, name: str, version: DefinitionVersion) -> CompiledDefinition | None:
        """The compiled form of a definition if it is kept; None where it has to be read and compiled again."""
        with self._lock:
            found = self._kept.get((name, version))
            if found is not None:
                self._kept.move_to_end((name, version))
            return found

    def plan(self, stored: StoredDefinition) -> Plan:
        """The plan of a stored definition. Raises what `compiled` raises."""
        return self.compiled(stored).plan

    def _keep(self, stored: StoredDefinition, compiled: CompiledDefinition) -> None:
        with self._lock:
            self._kept[stored.name, stored.version] = compiled
            if len(self._kept) > self._capacity:
                self._kept.popitem(last=False)

    def _schema(self, descriptors: FileDescriptorSet) -> Schema:
        digest = set_digest(descriptors)
        schema = self._schemas.get(digest)
        if schema is None:
            schema = Schema(descriptors)
            self._schemas[digest] = schema
        return schema
