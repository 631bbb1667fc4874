"""Which sagas a participant serves: what `ListSagas` finds by a participant's name.

A step names its participant, or lets the input choose it, or leaves it to whoever serves its methods' services. The
first and the last are told by the definitions; what an input chose stands in the ledger, saga by saga.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import structlog
from google.protobuf.message import DecodeError

from amends.v1.saga_definition_pb2 import SagaDefinition
from amends_coordinator.ports.listing import ServedBy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amends.v1.saga_definition_pb2 import Call, Step
    from amends_coordinator.core.definition import StoredDefinition
    from amends_coordinator.core.ids import DefinitionVersion
    from amends_coordinator.engine.registry import Registry
    from amends_coordinator.ports.ledger import Ledger

PIECE = 16
"""Definitions that are read at once: they carry their descriptors."""

_log: Any = structlog.get_logger(__name__)  # structlog's loggers are untyped proxies


class _Needs(NamedTuple):
    """Whom the steps of a definition need: participants by name, and services whoever serves them."""

    participants: frozenset[str]
    services: frozenset[str]


class ServedSagas:
    """What each registered definition needs. Definitions never change, so each is read once."""

    def __init__(self, *, ledger: Ledger, registry: Registry) -> None:
        self._ledger = ledger
        self._registry = registry
        self._needs: dict[tuple[str, DefinitionVersion], _Needs] = {}

    async def by(self, participant: str) -> ServedBy:
        """The sagas that a participant serves, one that isn't there just now included.

        Raises:
            LedgerUnavailableError: there are definitions that aren't known here, and the ledger can't be asked.
        """
        await self._learn()
        services = {
            service
            for announced in self._registry.participants()
            if announced.participant.name == participant
            for service in announced.participant.services
        }
        served = {
            key
            for key, needs in self._needs.items()
            if participant in needs.participants or not services.isdisjoint(needs.services)
        }
        names = {name for name, _ in served} - {name for name, _ in self._needs.keys() - served}
        versions = frozenset((name, version) for name, version in served if name not in names)
        return ServedBy(participant=participant, names=frozenset(names), versions=versions)

    async def _learn(self) -> None:
        """Read the definitions that were registered since: the newest ones, up to those that are known."""
        before = None
        while True:
            page = await self._ledger.list_definitions(limit=PIECE, before=before)
            fresh = [stored for stored in page.definitions if (stored.name, stored.version) not in self._needs]
            self._needs |= {(stored.name, stored.version): _needs(stored) for stored in fresh}
            before = page.next
            if before is None or not fresh:
                return


def _needs(stored: StoredDefinition) -> _Needs:
    try:
        definition = SagaDefinition.FromString(stored.content)
    except DecodeError as error:
        _log.error("definition unreadable", definition=stored.name, version=stored.version, error=str(error))
        return _Needs(frozenset(), frozenset())
    steps = (*definition.steps, *definition.on_compensated)
    anybodys = [step for step in steps if not step.participant and not step.participant_input]
    return _Needs(
        participants=frozenset(step.participant for step in steps if step.participant),
        services=frozenset(call.method.partition("/")[0] for step in anybodys for call in _calls(step)),
    )


def _calls(step: Step) -> Iterable[Call]:
    return (call for call in (step.action, step.compensation, step.lookup) if call.method)
