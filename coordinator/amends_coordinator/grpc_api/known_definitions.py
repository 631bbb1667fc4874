"""Definitions by name and version as requests ask for them, without a look into the ledger for each.

A version never changes, so it can't go stale. Which version is the default one changes only when another is registered;
one process holds the ledger, so every registration passes through here.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from amends_coordinator.core.ids import DefinitionVersion
from amends_coordinator.definitions.errors import DescriptorError
from amends_coordinator.grpc_api.errors import DefinitionNotFoundError
from amends_coordinator.ports.ledger import UnreadableDefinitionError

if TYPE_CHECKING:
    from amends_coordinator.core.definition import StoredDefinition
    from amends_coordinator.definitions.catalog import Catalog
    from amends_coordinator.definitions.compiled import CompiledDefinition
    from amends_coordinator.ports.ledger import Ledger, StoredSaga

CAPACITY = 1_000


class KnownDefinitions:
    """The most recently used definitions and default versions, each within a bound."""

    def __init__(self, *, ledger: Ledger, catalog: Catalog, capacity: int = CAPACITY) -> None:
        self._ledger = ledger
        self._catalog = catalog
        self._capacity = capacity
        self._versions: OrderedDict[tuple[str, str], StoredDefinition] = OrderedDict()
        self._defaults: OrderedDict[str, StoredDefinition] = OrderedDict()

    def known(self, name: str, version: str) -> StoredDefinition | None:
        """A definition as of `get`, if it is known here: then it has a name and a version as they have to be."""
        return self._versions.get((name, version)) if version else self._defaults.get(name)

    async def get(self, name: str, version: str) -> StoredDefinition:
        """A definition; without a version the default one, which is the newest created.

        Raises:
            DefinitionNotFoundError: there is none.
            UnreadableDefinitionError: it is damaged.
            LedgerUnavailableError: it isn't known here, and the ledger can't be asked.
        """
        known = self.known(name, version)
        if known is not None:
            return known
        stored = await self._ledger.get_definition(name, DefinitionVersion(version) if version else None)
        if stored is None:
            raise DefinitionNotFoundError(name, version)
        return self._keep_version(stored) if version else self._keep_default(stored)

    async def of(self, saga: StoredSaga) -> CompiledDefinition:
        """The compiled definition that a saga began with. Raises what `get` raises."""
        return self.compiled(await self.get(saga.saga.plan.name, saga.saga.plan.version))

    def compiled(self, stored: StoredDefinition) -> CompiledDefinition:
        """A definition ready to run.

        Raises:
            UnreadableDefinitionError: it is damaged.
        """
        try:
            return self._catalog.compiled(stored)
        except DescriptorError as error:
            raise UnreadableDefinitionError(stored.name, stored.version, str(error)) from error

    async def registered(self, stored: StoredDefinition) -> None:
        """Tell that a definition is in the ledger; registering known content again moves nothing.

        Raises:
            LedgerUnavailableError: whether it is the newest one isn't known here, and the ledger can't be asked.
        """
        self._keep_version(stored)
        newest = stored
        if stored.name not in self._defaults:
            # It may be an old one: this process hasn't seen those that were registered before it began.
            newest = await self._ledger.get_definition(stored.name, None) or stored
        self._keep_default(newest)

    def _keep_version(self, stored: StoredDefinition) -> StoredDefinition:
        self._versions[stored.name, stored.version] = stored
        self._versions.move_to_end((stored.name, stored.version))
        if len(self._versions) > self._capacity:
            self._versions.popitem(last=False)
        return stored

    def _keep_default(self, stored: StoredDefinition) -> StoredDefinition:
        """Keep the newer one: an answer of the ledger may be older than a registration that came in between."""
        known = self._defaults.get(stored.name)
        if known is None or stored.created_time >= known.created_time:
            self._defaults[stored.name] = known = stored
        self._defaults.move_to_end(stored.name)
        if len(self._defaults) > self._capacity:
            self._defaults.popitem(last=False)
        return known
