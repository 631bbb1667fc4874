"""What the ledger in memory keeps, and one process's access to it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from amends_coordinator.core.definition import StoredDefinition
from amends_coordinator.core.ids import DefinitionVersion, Instant, NodeId, SagaId, StepName
from amends_coordinator.core.saga import DeadLetter, Intent, Saga
from amends_coordinator.core.states import SagaState
from amends_coordinator.ports.ledger import (
    InputHash,
    InstanceRow,
    LedgerUnavailableError,
    NodeFencedError,
    ParticipantRow,
    StoredSaga,
    UnknownPlanError,
    Write,
)
from amends_coordinator.ports.repairs import AuditEntry

if TYPE_CHECKING:
    from collections.abc import Callable

    from amends_coordinator.core.ids import DeadLetterId
    from amends_coordinator.core.plan import Plan
    from amends_coordinator.core.states import Direction
    from amends_coordinator.ports.repairs import LettersOpened


@dataclass(slots=True, kw_only=True)
class Record:
    """One saga as stored, and what recognises a start or a write that is sent again."""

    stored: StoredSaga
    start_token: str
    input_hash: InputHash
    participants: frozenset[str] = frozenset()
    goes_first: bool = False
    waits_for: str = ""
    last_write: Write | None = None


@dataclass(slots=True)
class Node:
    """One incarnation's row."""

    started: Instant
    heartbeat: Instant | None = None
    fenced: bool = False


@dataclass(slots=True)
class MemoryStore:
    """What outlives a process: the rows of one ledger, and who holds its lock."""

    records: dict[SagaId, Record] = field(default_factory=dict[SagaId, Record])
    definitions: dict[tuple[str, DefinitionVersion], StoredDefinition] = field(
        default_factory=dict[tuple[str, DefinitionVersion], StoredDefinition]
    )
    participants: dict[str, ParticipantRow] = field(default_factory=dict[str, ParticipantRow])
    instances: dict[tuple[str, str], InstanceRow] = field(default_factory=dict[tuple[str, str], InstanceRow])
    nodes: dict[NodeId, Node] = field(default_factory=dict[NodeId, Node])
    audit: dict[str, AuditEntry] = field(default_factory=dict[str, AuditEntry])
    holder: NodeId | None = None

    def fence(self, node: NodeId) -> None:
        """Shut an incarnation out: nothing that it writes is applied any more."""
        self.nodes[node].fenced = True


class MemoryAccess:
    """A `MemoryStore` (a new one unless given) and the node that has opened it. `letters_opened` is told of each dead
    letter that isn't part of a decision.
    """

    def __init__(self, store: MemoryStore | None = None, *, letters_opened: LettersOpened | None = None) -> None:
        self.store = store if store is not None else MemoryStore()
        self._letters_opened = letters_opened
        self._node: NodeId | None = None
        self._make_plan: Callable[[StoredDefinition], Plan] | None = None
        self._plans: dict[tuple[str, DefinitionVersion], Plan] = {}

    async def _writing(self) -> NodeId:
        """Let others run first, as a database would, then answer the node, if it may write."""
        await asyncio.sleep(0)
        node = self._opened()
        if self.store.nodes[node].fenced:
            raise NodeFencedError(f"node {node} was fenced: drop everything it holds and start as a new incarnation")
        return node

    async def _reading(self) -> None:
        await asyncio.sleep(0)
        self._opened()

    def _opened(self) -> NodeId:
        if self._node is None:
            raise LedgerUnavailableError("this ledger is not open: open it first, and use it no more once it is closed")
        return self._node

    def _readable(self, stored: StoredSaga) -> StoredSaga:
        plan = stored.saga.plan
        return replace(stored, saga=replace(stored.saga, plan=self._plan(plan.name, plan.version)))

    def _plan(self, name: str, version: DefinitionVersion) -> Plan:
        plan = self._plans.get((name, version))
        if plan is None:
            definition = self.store.definitions.get((name, version))
            if definition is None or self._make_plan is None:
                raise UnknownPlanError(f"the ledger has no definition {name} {version}: register it again")
            plan = self._plans[name, version] = _planned(self._make_plan, definition)
        return plan


def _planned(make_plan: Callable[[StoredDefinition], Plan], definition: StoredDefinition) -> Plan:
    try:
        return make_plan(definition)
    except Exception as error:
        raise UnknownPlanError(
            f"definition {definition.name} {definition.version} gives no plan: {error}; run the release that stored it"
        ) from error


def emptied(record: Record) -> StoredSaga:
    """A saga as retention leaves it."""
    saga = record.stored.saga
    failure = None if saga.failure is None else replace(saga.failure, message="")
    letters = tuple(replace(letter, last_error="") for letter in saga.dead_letters)
    left = replace(
        saga, input=b"", output=None, labels=MappingProxyType({}), intents=(), failure=failure, dead_letters=letters
    )
    return replace(record.stored, saga=left, version=record.stored.version + 1, purged=record.input_hash)


def goes_first(saga: Saga) -> bool:
    """Whether a saga that was just written is taken up before others: it rolls back."""
    return saga.state is not SagaState.RUNNING


def merged(old: Saga, write: Write) -> Saga:
    """The saga as a database would hold it: of the intents and dead letters only the listed ones change."""
    new = write.saga
    intents: dict[tuple[StepName, Direction], Intent] = {intent.key: intent for intent in old.intents}
    intents.update((intent.key, intent) for intent in write.intents)
    letters: dict[DeadLetterId, DeadLetter] = {letter.id: letter for letter in old.dead_letters}
    letters.update((letter.id, letter) for letter in write.dead_letters)
    return replace(
        new,
        plan=old.plan,
        input=old.input,
        labels=old.labels,
        created_time=old.created_time,
        traceparent=old.traceparent,
        tracestate=old.tracestate,
        intents=tuple(intents[intent.key] for intent in new.intents if intent.key in intents),
        dead_letters=tuple(letters[letter.id] for letter in new.dead_letters if letter.id in letters),
    )
