"""The port to durable storage: the intent ledger.

Guarantees of every adapter, held by one conformance suite (tests/conformance):

* **Durable before told** (S11): a method that returns has its effect on disk, or is documented otherwise.
* **Whole or not at all**: the saga row, its intents and its dead letters of one write are applied together.
* **One guard per saga** (rule 3): a write is applied only if the saga's row has the `version` that the decision saw and
  the `owner` that the writer is. A decision that is refused spoils no other.
* **Idempotent re-sends** (rule 4): a write that was applied although its answer was lost is recognised when it is sent
  again and reported as applied.
* **Fencing** (rule 5): no write of a fenced incarnation is applied (S7).
* **Group commit**: writes that wait together share one transaction; none waits for others to come.

No method may be called on the event loop in a way that blocks it. Driver errors never leave an adapter: everything that
can go wrong is one of the exceptions below.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from amends_coordinator.core.definition import StoredDefinition
from amends_coordinator.core.ids import DefinitionVersion, Instant, NodeId, SagaId, StepName
from amends_coordinator.core.saga import DeadLetter, Intent, Saga
from amends_coordinator.core.states import SagaState
from amends_coordinator.core.values import quick
from amends_coordinator.ports.repairs import Repairs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amends_coordinator.core.plan import Plan
    from amends_coordinator.ports.connections import StaticConnection
    from amends_coordinator.ports.listing import SagaFilter


class LedgerError(Exception):
    """Root of everything that a ledger raises."""


class LedgerUnavailableError(LedgerError):
    """The database can't be reached, or is full, or broken. Nothing is known to be stored; the same call may be
    repeated.
    """


class LedgerLockedError(LedgerError):
    """Another process holds this ledger. Stop it, or give this one another ledger."""


class LedgerSchemaError(LedgerError):
    """The database's schema is not one that this release knows. Run `amends migrate` with the right release."""


class NodeFencedError(LedgerError):
    """This incarnation was shut out. It must drop everything that it holds and start again as a new one."""


class WriteRefusedError(LedgerError):
    """The database refuses this write's data, and always will. Repeating it is useless."""


class UnreadableSagaError(LedgerError):
    """The saga is stored, but this release can't make sense of it. Only a person can; other sagas are not affected."""


class UnreadableDefinitionError(LedgerError):
    """The definition is stored, but this release can't make sense of it. Mend its row; others are not affected."""

    def __init__(self, name: str, version: str, problem: str) -> None:
        self.resource = f"{name} {version}".rstrip()
        super().__init__(
            f"saga definition {self.resource} is stored, but this release can't read it ({problem}): mend its row with "
            "SQL, or run the release that wrote it"
        )


class UnknownPlanError(UnreadableSagaError):
    """A stored saga names a definition that the ledger doesn't have, or whose content gives no plan."""


class SupersededError(LedgerError):
    """Somebody else wrote the saga since the decision was made. Decide the same event again on `current`."""

    def __init__(self, current: StoredSaga) -> None:
        super().__init__(f"saga {current.saga.id} is at version {current.version} now")
        self.current = current


@dataclass(frozen=True, slots=True, kw_only=True)
class InputHash:
    """What is left of the input of a saga that retention has emptied: its hash, and the name of the recipe that made
    it.
    """

    value: bytes
    recipe: str


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSaga:
    """A saga as it stands in the ledger. `version` counts its writes, from 1; `owner` drives it (None: nobody).

    `purged` is set where retention has emptied it: only its row is left, and `saga` has neither payloads nor labels nor
    intents. `waits_for` is as in `Write`, where it was loaded.
    """

    saga: Saga
    version: int
    owner: NodeId | None
    purged: InputHash | None = None
    waits_for: str = field(default="", compare=False)


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class NewSaga:
    """A saga to insert with the intents of its first decision.

    `start_token` is new for every request: only the request whose token is stored is the starter. `owner` is None where
    this node doesn't drive the saga at once; then its `due_time` says when it is to be claimed.
    `input_hash` is kept when retention empties the saga, with the name of its recipe. `participants` are those that the
    saga's input chose for its steps, to be found by; those that its definition names are not among them.
    `waits_for` is as in `Write`.
    """

    saga: Saga
    start_token: str
    owner: NodeId | None
    input_hash: bytes
    input_hash_recipe: str
    participants: tuple[str, ...] = ()
    waits_for: str = ""


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What became of a start. `started`: this request began it; else `stored` is the saga that exists."""

    started: bool
    stored: StoredSaga


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One decision about one saga.

    `saga` is the saga after it; `seen_version` the version that it was decided on; `intents` and `dead_letters` are the
    rows that it adds or changes (also part of `saga`); others are left as they are stored. What a saga was started with
    never changes: its plan, input, labels, creation time and trace context. `waits_for` is the participant that its
    next call goes to ("": none, or several, of which one may have room); what people write leaves it empty, so that the
    saga is looked at whatever becomes of that participant.
    """

    saga: Saga
    seen_version: int
    intents: tuple[Intent, ...] = ()
    dead_letters: tuple[DeadLetter, ...] = ()
    waits_for: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How many more sagas may be taken into memory because of what they wait for (`Write.waits_for`): `each` of any one
    participant, and fewer of those in `left`.
    """

    each: int
    left: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParticipantRow:
    """A participant: its services and the serialised `FileDescriptorSet` that describes them. `connection` is the
    serialised `StaticConnection` of a static one; None: it announces itself.
    """

    name: str
    services: tuple[str, ...]
    descriptors: bytes
    created_time: Instant
    updated_time: Instant
    connection: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRow:
    """One process of a participant, reachable at `address` until `lease_end_time`. `capacity` 0: unknown.

    `connection` says how a static participant is reached, whose only instance this then is. That one isn't in the
    ledger: everything about it stands with the participant.
    """

    participant: str
    instance_id: str
    address: str
    capacity: int
    lease_end_time: Instant
    connection: StaticConnection | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a list, newest first. `next` is where the following page begins (None: this is the last).

    `steps_done`: the steps whose action succeeded or was settled by a person, of each saga that has some (its intents
    are left out); of a committed one, which has done all, they may be missing.
    """

    sagas: tuple[StoredSaga, ...]
    next: tuple[Instant, SagaId] | None
    steps_done: Mapping[SagaId, frozenset[StepName]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionPage:
    """One page of definitions, newest first. `next` is where the following page begins (None: this is the last)."""

    definitions: tuple[StoredDefinition, ...]
    next: tuple[Instant, str, DefinitionVersion] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What stands in the ledger just now, for those who watch over it.

    `unfinished`: how many sagas are in each state that is no end, 0 included. `oldest_due_time`: since when the saga is
    due that has waited longest for a node, `oldest_open_time`: when the oldest open dead letter was opened,
    `oldest_compensating_time`: since when the saga rolls back that has done so longest; None: there is none.
    """

    unfinished: Mapping[SagaState, int]
    open_dead_letter_count: int
    oldest_open_time: Instant | None
    oldest_due_time: Instant | None
    oldest_compensating_time: Instant | None


ROOMY = Room(each=1_000_000_000)
"""Room for any number."""


class Ledger(Repairs, Protocol):
    """Durable storage of sagas, definitions, participants and nodes. See the module's guarantees, and `ports.repairs`
    for what people do to sagas.

    Every method may raise `LedgerUnavailableError`. Unless said otherwise a method is safe to repeat.
    """

    async def open(self, node: NodeId, *, plans: Callable[[StoredDefinition], Plan]) -> None:
        """Take the ledger for this incarnation: lock it, add the node's row, fence every older incarnation and release
        its sagas (`owner = None`, due now). `plans` turns a stored definition into its plan, and is called once per
        definition and process, in any thread.

        Raises:
            LedgerLockedError: another process holds it.
            LedgerSchemaError: the schema is missing or unknown.
        """
        ...

    async def close(self) -> None:
        """Release this node's sagas (`owner = None`, due now) and give the ledger up. No other method may follow."""
        ...

    async def heartbeat(self, now: Instant) -> None:
        """Write the node's sign of life, in a transaction of its own.

        Raises:
            NodeFencedError: this incarnation was shut out.
        """
        ...

    async def start(self, new: NewSaga) -> Started:
        """Insert a saga with its intents, unless the id exists. Two starts with one id in one batch: one of them
        starts.
        Sent again with the same `start_token` it answers `started = True` again.

        Raises:
            NodeFencedError, WriteRefusedError.
        """
        ...

    async def append(self, write: Write) -> int:
        """Apply one decision, durably, under the guard; answers the saga's new version. The same `Write` may be sent
        again after `LedgerUnavailableError`.

        Raises:
            SupersededError: the saga has another version or owner now; nothing of this write was applied.
            NodeFencedError, WriteRefusedError.
        """
        ...

    async def load(self, saga_id: SagaId) -> StoredSaga | None:
        """The saga with its intents and dead letters, or None.

        Raises:
            UnreadableSagaError: it is stored, but can't be read.
        """
        ...

    async def claim(
        self, *, now: Instant, limit: int, held: frozenset[SagaId], room: Room = ROOMY
    ) -> Sequence[StoredSaga]:
        """Take up to `limit` sagas that are due and whose owner is nobody or this node, leaving out those in `held`. A
        compensated saga is due if steps are left that follow its compensation; otherwise an ended saga never is. Each
        gets this node as its owner (`version` + 1 where that changes). First those that roll back and those that a
        node left behind, then the others; of both the oldest due first. Of those that wait for one participant no more
        than `room` says, unless their timeout is over and rolls them back: the others are passed over and keep nobody
        waiting. A saga that can't be read is left out, logged, and due again a minute later, so that it keeps no others
        waiting; it gets a dead letter.

        Raises:
            NodeFencedError.
        """
        ...

    async def purge(self, *, ended_before: Instant, limit: int) -> int:
        """Empty up to `limit` sagas that ended before an instant, the ones first that ended first; answers how many
        were emptied (fewer than `limit`: there are no more just now).

        Input, output, labels, chosen participants and intents are removed, and with them every word of a participant
        that may quote a payload: the failure's message and the last errors of dead letters. What stays is the row (id,
        definition, state, times, the failure's step, reason and code, the input's hash), dead letters and the audit.
        Its `version` grows, its times stay as they are. A saga that has an open dead letter or something left to do is
        left alone, and one that somebody keeps locked is left for later.

        Raises:
            NodeFencedError.
        """
        ...

    async def list_sagas(self, wanted: SagaFilter, *, limit: int, before: tuple[Instant, SagaId] | None) -> Page:
        """Sagas that the filter lets through, newest first, without intents, but with dead letters (so that
        `attention_required` tells the truth). A saga that can't be read is left out and logged. A page may be shorter
        than `limit`, even empty, while `next` says that there are further ones: the work for one is bounded. Sagas that
        are started between two pages change nothing about what is on the following ones.
        """
        ...

    async def write_counts(self, ids: Sequence[SagaId]) -> dict[SagaId, int]:
        """How often each of these sagas was written (`StoredSaga.version`), an unreadable one, too; what isn't there
        is left out. Light: it is asked several times a second while somebody watches.
        """
        ...

    async def count_by_state(self) -> dict[SagaState, int]:
        """How many sagas are in each state."""
        ...

    async def measure(self, now: Instant) -> Measures:
        """What stands just now. Never looks at sagas that have ended, however many there are."""
        ...

    async def put_definition(self, definition: StoredDefinition) -> StoredDefinition:
        """Store a definition unless its name and version exist; answers what is stored. A new version counts as created
        later than every other of its name, whatever its clock says: that decides with which one new sagas begin.
        """
        ...

    async def get_definition(self, name: str, version: DefinitionVersion | None) -> StoredDefinition | None:
        """A definition by name and version; without a version the newest created."""
        ...

    async def list_definitions(
        self, *, limit: int, before: tuple[Instant, str, DefinitionVersion] | None
    ) -> DefinitionPage:
        """Definitions of every name, newest first; those of one instant in an order that stays. Contents are big: ask
        for few at a time.
        """
        ...

    async def put_participant(self, participant: ParticipantRow, instance: InstanceRow | None) -> None:
        """Add or replace a participant (its `created_time` stays) and one of its instances; None: a static participant,
        and all instances that it had when it announced itself are removed.
        """
        ...

    async def remove_participant(self, participant: str) -> None:
        """Remove a participant with all its instances; nothing happens if it isn't there."""
        ...

    async def remove_instance(self, participant: str, instance_id: str) -> None:
        """Remove an instance; nothing happens if it isn't there."""
        ...

    async def participants(self) -> tuple[Sequence[ParticipantRow], Sequence[InstanceRow]]:
        """All participants by name, and all instances, those whose lease has ended included."""
        ...
