"""What happens when a call comes to the barrier: its row is claimed, and the rules say how it goes on.

Each function takes a `Connection` in a transaction that has not done anything yet, claims and reads, and leaves the
transaction open: who called decides whether it is committed (see `LEAVES_MARK`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from amends.barrier import statements
from amends.barrier.errors import Unclear
from amends.barrier.rules import Do, Found, Question, lookup_of, what_to_do
from amends.participant.context import ActionTarget

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from amends.barrier.calls import GuardedCall
    from amends.barrier.statements import Row

SURELY_REMEMBERED = timedelta(minutes=10)
"""Steps younger than this are never purged, so they don't ask for the horizon. A purge keeps an hour at least; what is
between is how far the clocks of a participant's processes may be apart."""

LEAVES_MARK = frozenset({Do.NOTHING, Do.ABSENT})
"""After these the transaction is committed: they promise what only a durable row can keep."""


@dataclass(frozen=True, slots=True)
class Entered:
    """What to do, and the row that says so; None where there was none."""

    do: Do
    row: Row | None


def enter_action(connection: Connection, call: GuardedCall) -> Entered:
    """An action claims its row. `RUN`: it is this transaction's, in state `running`.

    Raises:
        Unclear: another request came with its key, or the step is too old to know.
    """
    return _enter_own(connection, call, Question.ACTION)


def enter_compensation(connection: Connection, call: GuardedCall) -> Entered:
    """A compensation claims its own row, then the action's. `RUN`: its own is this transaction's, in state `running`,
    and the answer's row is the action's. `NOTHING`: its own is `done` with an empty response.

    Raises:
        Unclear: as for an action.
    """
    own = _enter_own(connection, call, Question.UNDO)
    if own.do is not Do.RUN or call.step.action_target is not ActionTarget.SAME:
        return own
    action = statements.claim_or_read(connection, call.action_mark(Found.NULL))
    if action is None:
        check_remembered(connection, call)  # once more: a purge may have taken it since the first claim
    do = what_to_do(Question.UNDONE_ACTION, action.state if action is not None else Found.NEVER)
    if do is Do.NOTHING:
        done = {"state": Found.DONE.value, "response": b""}
        statements.finish(connection, call.step.ledger, call.step.key, was=Found.RUNNING, values=done)
    return Entered(do, action)


def enter_lookup(connection: Connection, call: GuardedCall) -> Entered:
    """A lookup claims the action's row as a mark that it never ran; that of a retriable step only reads it.

    Raises:
        Unclear: the step is too old to know.
    """
    question = lookup_of(call.step.kind)
    if question is Question.RETRIABLE_LOOKUP:
        row = statements.read(connection, call.step.ledger, call.action_key)
    else:
        row = statements.claim_or_read(connection, call.action_mark(Found.NULL))
    if row is None:
        check_remembered(connection, call)
    return Entered(what_to_do(question, row.state if row is not None else Found.NEVER), row)


def check_remembered(connection: Connection, call: GuardedCall) -> None:
    """Make sure that a row which was not there has not been purged. Asked after the claim: a purge moves the horizon
    before it deletes.

    Raises:
        Unclear: it may have been.
    """
    if call.step_time > datetime.now(UTC) - SURELY_REMEMBERED:
        return
    horizon = statements.forgotten_before(connection)
    if horizon is not None and call.step_time < horizon:
        raise Unclear(
            f"step {call.step.step} of saga {call.step.saga_id} is of {call.step_time.isoformat()}: too old to know "
            f"what became of it, since the barrier was purged of everything before {horizon.isoformat()}; a person "
            "must find out (amends deadletter)"
        )


def _enter_own(connection: Connection, call: GuardedCall, question: Question) -> Entered:
    row = statements.claim_or_read(connection, call.own_row(Found.RUNNING))
    if row is None:
        check_remembered(connection, call)
        return Entered(what_to_do(question, Found.NEVER), None)
    if row.request_hash is not None and row.request_hash != call.request_hash:
        raise Unclear(
            f"key {call.step.key} of ledger {call.step.ledger!r} stands for another request ({row.method}), and this "
            "one was not carried out: a key stands for one request; if that ledger was made anew, give sagas new ids"
        )
    return Entered(what_to_do(question, row.state), row)
