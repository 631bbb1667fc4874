"""The part of the ledger port that people need: aborts, operators' verbs, dead letters and the audit.

Beside the guarantees of `ports.ledger`:

* **Not the owner's** (rule 3): these writes are made by whoever is asked, at whichever node. They have no condition on
  the owner and leave it and `written_by` alone; they bump `version` and make the saga due at once, so that the node
  that drives it decides its next event on what was written, and one that nobody drives is taken up.
* **Told with its audit**: what a person did and who it was are in one transaction.
* **A locked row holds up nobody else** (B8): a write whose row somebody else keeps locked waits for that row alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from amends_coordinator.core.ids import DeadLetterId, Instant, NodeId, SagaId

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amends_coordinator.core.saga import DeadLetter, Failure
    from amends_coordinator.core.states import DeadLetterReason
    from amends_coordinator.ports.ledger import StoredSaga, Write


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """What a person did to a saga.

    `id` is made by the node that was asked, at most 64 characters: a write that is sent again finds its own entry.
    `actor` is who did it, as authenticated; `claimed_actor` who the request said it was, which proves nothing.
    `details` is what was asked for, as JSON.
    """

    id: str
    saga_id: SagaId
    dead_letter_id: DeadLetterId | None
    verb: str
    actor: str
    claimed_actor: str
    reason: str
    details: str
    created_time: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortAnswer:
    """What became of an abort, read from the saga's row after the write. `accepted`: the saga rolls back, or has done
    so already; else it is past its point of no return, and nothing was changed.
    """

    accepted: bool
    stored: StoredSaga


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLetter:
    """A dead letter with what an operator sorts by. `method` and `last_code` are those of its call; "" where it is the
    saga as a whole, or no answer came.
    """

    saga_id: SagaId
    definition_name: str
    letter: DeadLetter
    method: str
    last_code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterGroup:
    """How many dead letters have a method, a reason and a last status code in common, and when the oldest was
    opened.
    """

    method: str
    reason: DeadLetterReason
    last_code: str
    count: int
    oldest_time: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Which dead letters are looked for. Each field left out means all."""

    saga_id: SagaId | None = None
    reasons: frozenset[DeadLetterReason] = frozenset()
    method: str = ""
    closed_too: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterPage:
    """One page of dead letters, oldest first. `next` is where the following page begins (None: this is the last)."""

    letters: tuple[FoundLetter, ...]
    next: tuple[Instant, DeadLetterId] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """One page of audit entries, newest first. `next` is where the following page begins (None: this is the last)."""

    entries: tuple[AuditEntry, ...]
    next: tuple[Instant, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One incarnation that ever held the ledger. `heartbeat_time` None: it gave no sign of life yet."""

    node_id: NodeId
    started_time: Instant
    heartbeat_time: Instant | None
    fenced: bool


LettersOpened: TypeAlias = "Callable[[DeadLetterReason, int], None]"
"""Is told that so many dead letters were opened without a decision, as `Repairs.put_dead_letter` does it."""


class Repairs(Protocol):
    """See the module. Every method may raise `LedgerUnavailableError`."""

    async def append_verb(self, write: Write, audit: AuditEntry) -> int:
        """Apply what a person decided on the version that they saw, and the audit entry with it; answers the saga's new
        version. Sent again with the same audit entry it changes nothing and answers the version that stands.

        Raises:
            SupersededError: somebody else wrote the saga meanwhile; nothing was applied: decide again.
            NodeFencedError, WriteRefusedError.
        """
        ...

    async def request_abort(self, saga_id: SagaId, *, failure: Failure, audit: AuditEntry) -> AbortAnswer | None:
        """Ask a saga to roll back. Decided by the saga's own row, whoever wrote it last: a saga that runs and hasn't
        passed its point of no return is marked, with `failure` as its first cause unless it has one. None: there is no
        such saga. Sent again it answers the same; only the one that marked it leaves an audit entry.

        Raises:
            UnreadableSagaError: the abort is decided, but this release can't read the saga.
            NodeFencedError.
        """
        ...

    async def put_dead_letter(
        self, saga_id: SagaId, *, reason: DeadLetterReason, last_error: str, now: Instant
    ) -> DeadLetterId | None:
        """Open a dead letter of the whole saga without a decision, because none can be made: its rows can't be read, or
        the database refuses what is decided. Nothing else about the saga changes but its version. One that is open for
        this reason already stays the only one; then, and where there is no such saga, the answer is None.

        Raises:
            NodeFencedError.
        """
        ...

    async def load_dead_letter(self, letter_id: DeadLetterId) -> FoundLetter | None:
        """A dead letter by its id, open or closed."""
        ...

    async def list_dead_letters(
        self, wanted: LetterFilter, *, limit: int, after: tuple[Instant, DeadLetterId] | None
    ) -> LetterPage:
        """Dead letters, oldest first. One that can't be read is left out and logged."""
        ...

    async def group_dead_letters(self, wanted: LetterFilter) -> Sequence[LetterGroup]:
        """How many there are of each kind, most first."""
        ...

    async def list_audit_entries(
        self, saga_id: SagaId | None, *, limit: int, before: tuple[Instant, str] | None
    ) -> AuditPage:
        """What people did to one saga, or to all, newest first."""
        ...

    async def list_nodes(self) -> Sequence[NodeRow]:
        """The incarnations that ever held the ledger, newest first."""
        ...
