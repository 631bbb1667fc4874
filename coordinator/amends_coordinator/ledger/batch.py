"""One transaction of decisions: what each of them writes, under its guard, and what became of it.

The order of statements is semantics.md section 8, rule 3: the node's own row first; then the guard, which locks the
sagas and finds those whose owner or version is not what their decision saw; everything else writes only for the others.
New sagas come last, in the order of their ids. So a decision is applied whole or not at all, and one that is refused
spoils no other.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from amends_coordinator.ledger import rows
from amends_coordinator.ports.ledger import NewSaga, NodeFencedError, Write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from amends_coordinator.core.ids import NodeId, SagaId
    from amends_coordinator.core.saga import Saga
    from amends_coordinator.ledger.last_writes import LastWrites
    from amends_coordinator.ledger.rows import EncodeInstant, IntentRows, Row
    from amends_coordinator.ledger.statements import Statements


class Applied(NamedTuple):
    """The decision is stored. `by_this`: its rows are exactly as it wrote them, nobody has written since."""

    version: int
    by_this: bool = True


@dataclass(frozen=True, slots=True)
class NotApplied:
    """The saga is not as the decision saw it: load it and see."""


@dataclass(frozen=True, slots=True)
class LockedElsewhere:
    """Somebody keeps the saga's row locked: try the decision again with the next batch."""


Verdict = Applied | NotApplied | LockedElsewhere


@dataclass(eq=False, slots=True)
class Decision:
    """A start or a write that waits for its transaction. `rows` are made once, for the batch that sends it."""

    future: asyncio.Future[Verdict]
    queued_time_s: float
    content: NewSaga | Write
    saga_id: SagaId
    rows: DecisionRows | None = None
    held_up: int = 0
    """How often in a row its rows were locked by somebody else."""
    not_before_s: float = 0.0
    """When it is tried again, by the monotonic clock."""
    alone: bool = False
    """Whether it is sent in a transaction of its own, because somebody's lock held up a whole batch."""


class DecisionRows(NamedTuple):
    """The rows that a decision writes. `only_moves`: that of the saga has no more than `rows.SAGA_MOVES`."""

    saga: Row
    intents: IntentRows
    dead_letters: Sequence[Row]
    labels: Sequence[Row] = ()
    participants: Sequence[Row] = ()
    only_moves: bool = False


@dataclass(slots=True)
class Batch:
    """Decisions that share a transaction. `name` goes into `written_by`; sent again after a lost answer it keeps it."""

    name: str
    decisions: list[Decision] = field(default_factory=list[Decision])
    is_open: bool = False
    """Whether decisions that have come meanwhile may still join it."""


def encode(
    content: NewSaga | Write, written_by: str, instant: EncodeInstant, *, before: Saga | None = None
) -> DecisionRows:
    """The rows of a decision. `before`: the saga as its row holds it, if that is known.

    Raises:
        KeyError, TypeError, ValueError, OverflowError: a value in it can't be stored.
    """
    saga = content.saga
    if isinstance(content, NewSaga):
        return DecisionRows(
            saga=rows.saga_insert(content, written_by, instant),
            intents=rows.intents(saga, saga.intents, instant, stored=()),
            dead_letters=rows.dead_letters(saga, saga.dead_letters, instant),
            labels=rows.labels(saga, instant),
            participants=rows.participants(content, instant),
        )
    only_moves = before is not None and rows.only_moves(before, saga)
    return DecisionRows(
        saga=(rows.saga_move if only_moves else rows.saga_update)(content, written_by, instant),
        intents=rows.intents(saga, content.intents, instant, stored=None if before is None else before.intents),
        dead_letters=rows.dead_letters(saga, content.dead_letters, instant),
        only_moves=only_moves,
    )


class Transaction:
    """Applies batches on one connection; begins and commits nothing itself."""

    def __init__(self, connection: Connection, statements: Statements, node: NodeId) -> None:
        self._connection = connection
        self._statements = statements
        self._node = node

    def require_unfenced(self) -> None:
        """Lock the node's own row, so that nobody fences it before the commit.

        Raises:
            NodeFencedError: this incarnation was shut out.
        """
        if not self._statements.is_unfenced(self._connection, self._node):
            raise NodeFencedError(
                f"node {self._node} was fenced: drop everything it holds and start as a new incarnation"
            )

    def apply(self, batch: Batch, last: LastWrites) -> list[Verdict]:
        """Write what the guard lets through; answers a verdict per decision, in their order."""
        verdicts: dict[Decision, Verdict] = {}
        self._apply_writes(batch, last, verdicts)
        self._apply_starts(batch, verdicts)
        return [verdicts[decision] for decision in batch.decisions]

    def _apply_writes(self, batch: Batch, last: LastWrites, verdicts: dict[Decision, Verdict]) -> None:
        writes = [(decision, decision.content) for decision in batch.decisions if isinstance(decision.content, Write)]
        if not writes:
            return
        seen = sorted((decision.saga_id, write.seen_version, self._node) for decision, write in writes)
        unlike = self._statements.unlike(self._connection, seen)
        locked = self._locked_elsewhere([saga_id for saga_id, row in unlike.items() if row is None])
        passed: list[DecisionRows] = []
        for decision, write in writes:
            if decision.saga_id not in unlike:
                verdicts[decision] = Applied(write.seen_version + 1)
                passed.append(_rows(decision))
                continue
            row = unlike[decision.saga_id]
            if row is None:
                verdicts[decision] = LockedElsewhere() if decision.saga_id in locked else NotApplied()
            elif row[2] == batch.name or last.was_sent(write, row[2]):
                verdicts[decision] = Applied(write.seen_version + 1, by_this=False)
            else:
                verdicts[decision] = NotApplied()
        self._statements.update_saga.run(self._connection, [rows.saga for rows in passed if not rows.only_moves])
        self._statements.move_saga.run(self._connection, [rows.saga for rows in passed if rows.only_moves])
        self._put_intents(passed)
        self._statements.put_dead_letter.run(self._connection, [row for rows in passed for row in rows.dead_letters])

    def _locked_elsewhere(self, ids: Sequence[str]) -> set[str]:
        """Which of the sagas that the guard did not give are there all the same."""
        return {row[0] for row in self._statements.tokens(self._connection, ids)} if ids else set()

    def _apply_starts(self, batch: Batch, verdicts: dict[Decision, Verdict]) -> None:
        starts = [(decision, decision.content) for decision in batch.decisions if isinstance(decision.content, NewSaga)]
        if not starts:
            return
        starts.sort(key=lambda start: start[0].saga_id)
        sagas = [_rows(decision).saga for decision, _ in starts]
        if self._statements.insert_saga.run(self._connection, sagas) == len(sagas):
            verdicts.update((decision, Applied(1)) for decision, _ in starts)
            inserted = [_rows(decision) for decision, _ in starts]
        else:
            inserted = self._started_by_this(batch, starts, verdicts)
        self._put_intents(inserted)
        self._statements.insert_label.run(self._connection, [row for rows in inserted for row in rows.labels])
        self._statements.insert_participant.run(
            self._connection, [row for rows in inserted for row in rows.participants]
        )
        letters = [row for rows in inserted for row in rows.dead_letters]
        self._statements.insert_dead_letter.run(self._connection, letters)

    def _put_intents(self, passed: Sequence[DecisionRows]) -> None:
        self._statements.put_intent.run(self._connection, [row for rows in passed for row in rows.intents.whole])
        settled = [row for rows in passed for row in rows.intents.settled]
        if self._statements.settle_intent.run(self._connection, settled) != len(settled):
            raise LookupError("a call that the ledger held is not there any more: somebody has removed its row")
        announced = [row for rows in passed for row in rows.intents.announced]
        self._statements.announce_intent.run(self._connection, announced)

    def _started_by_this(
        self, batch: Batch, starts: Sequence[tuple[Decision, NewSaga]], verdicts: dict[Decision, Verdict]
    ) -> list[DecisionRows]:
        """Where some of the ids existed already: who started these sagas. Answers the rows of this batch's own."""
        ids = [decision.saga_id for decision, _ in starts]
        found = {row[0]: row for row in self._statements.tokens(self._connection, ids)}
        passed: dict[SagaId, DecisionRows] = {}
        for decision, new in starts:
            _, token, written_by, version = found[decision.saga_id]
            fresh = written_by == batch.name and version == 1
            verdicts[decision] = Applied(1, by_this=fresh) if token == new.start_token else NotApplied()
            if token == new.start_token and fresh:
                passed.setdefault(decision.saga_id, _rows(decision))
        return list(passed.values())


def _rows(decision: Decision) -> DecisionRows:
    if decision.rows is None:
        raise TypeError(f"the decision about saga {decision.saga_id} was not encoded")
    return decision.rows
