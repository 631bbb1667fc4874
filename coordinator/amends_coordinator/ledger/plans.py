"""The plans of stored definitions: read where a saga is read, made once per definition and process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from amends_coordinator.core.ids import DefinitionVersion
from amends_coordinator.ledger import reads
from amends_coordinator.ports.ledger import UnknownPlanError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from amends_coordinator.core.definition import StoredDefinition
    from amends_coordinator.core.plan import Plan


class Plans:
    """The plans of stored definitions, each made once."""

    def __init__(self, make_plan: Callable[[StoredDefinition], Plan]) -> None:
        self._make_plan = make_plan
        self._made: dict[tuple[str, str], Plan] = {}
        self._making = threading.Lock()

    def get(self, connection: Connection, name: str, version: str) -> Plan:
        """The plan of a definition.

        Raises:
            UnknownPlanError: it isn't stored, or can't be understood.
        """
        plan = self._made.get((name, version))
        if plan is None:
            with self._making:
                plan = self._made.get((name, version)) or self._make(connection, name, version)
                self._made[name, version] = plan
        return plan

    def _make(self, connection: Connection, name: str, version: str) -> Plan:
        definition = reads.get_definition(connection, name, DefinitionVersion(version))
        if definition is None:
            raise UnknownPlanError(f"the ledger has no definition {name} {version}: register it again")
        try:
            return self._make_plan(definition)
        except Exception as error:
            raise UnknownPlanError(
                f"definition {name} {version} gives no plan: {error}; run the release that stored it"
            ) from error
