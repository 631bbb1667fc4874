"""What people write: aborts, verbs with their audit entries, dead letters of sagas that can't be decided on.

Each runs in a transaction of its own and may run more than once, so each comes to the same result when it is repeated.
The saga's row is locked first, without waiting: one that somebody else keeps locked is tried again later by whoever
asked, and holds up nobody else.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from sqlalchemy import and_, func, insert, select, update

from amends_coordinator.core.ids import DeadLetterId, Instant
from amends_coordinator.core.states import SagaState
from amends_coordinator.ledger import rows, schema
from amends_coordinator.ports.ledger import LedgerError, UnreadableSagaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, RowMapping

    from amends_coordinator.core.ids import SagaId
    from amends_coordinator.core.saga import Failure
    from amends_coordinator.core.states import DeadLetterReason
    from amends_coordinator.ledger.dialect import SqlDialect
    from amends_coordinator.ports.ledger import Write
    from amends_coordinator.ports.repairs import AuditEntry

_OWNERS_ALONE = frozenset({"version", "written_by"})
"""What of a decision's columns a verb sets in its own way, or not at all."""


class SagaLockedError(LedgerError):
    """Somebody else keeps the saga's row locked. Try it again a little later."""


def append_verb(connection: Connection, dialect: SqlDialect, write: Write, audit: AuditEntry) -> int | None:
    """Write what a person decided; answers the saga's version, or None where it isn't as the decision saw it.

    Raises:
        SagaLockedError: nothing was written.
    """
    row = _locked(connection, write.saga.id)
    if row is None:
        return None
    version: int = row["version"]
    if _is_audited(connection, audit):
        return version
    if version != write.seen_version:
        return None
    *changes, _ = rows.saga_update(write, "", _as_it_is)
    columns = zip(rows.SAGA_CHANGES, changes, strict=True)
    _change_saga(connection, write.saga.id, {name: value for name, value in columns if name not in _OWNERS_ALONE})
    intents = rows.intents(write.saga, write.intents, _as_it_is).whole
    if intents:
        put = dialect.insert_or_update(schema.intent, key=rows.INTENT_KEY, changed=rows.INTENT_CHANGES)
        connection.execute(put, _named(rows.INTENT_COLUMNS, intents))
    letters = rows.dead_letters(write.saga, write.dead_letters, _as_it_is)
    if letters:
        put = dialect.insert_or_update(schema.dead_letter, key=("id",), changed=rows.DEAD_LETTER_CHANGES)
        connection.execute(put, _named(rows.DEAD_LETTER_COLUMNS, letters))
    _put_audit(connection, audit)
    return version + 1


def request_abort(connection: Connection, saga_id: SagaId, failure: Failure, audit: AuditEntry) -> bool | None:
    """Mark a saga that can still roll back; answers whether it rolls back or has done so, None where it isn't there.

    Raises:
        SagaLockedError: nothing was written.
        UnreadableSagaError: the same.
    """
    row = _locked(connection, saga_id)
    if row is None:
        return None
    if row["state"] not in frozenset(SagaState):
        raise UnreadableSagaError(f"saga {saga_id} is in state {row['state']!r}, which this release doesn't know")
    state = SagaState(row["state"])
    if state is not SagaState.RUNNING or row["abort_requested"]:
        return state is not SagaState.COMMITTED
    if row["point_of_no_return_passed"]:
        return False
    changes: dict[str, object] = {
        "abort_requested": True,
        "due_time": failure.time,
        "updated_time": failure.time,
        "progress_time": failure.time,
        "goes_first": True,
        "waits_for": "",
    }
    if row["is_without_failure"]:
        changes |= {
            "failure_step": failure.step,
            "failure_reason": rows.clean(failure.reason),
            "failure_code": rows.clean(failure.status_code),
            "failure_message": rows.clean(failure.message),
            "failure_time": failure.time,
        }
    _change_saga(connection, saga_id, changes)
    _put_audit(connection, audit)
    return True


def put_dead_letter(
    connection: Connection, saga_id: SagaId, *, reason: DeadLetterReason, last_error: str, now: Instant
) -> DeadLetterId | None:
    """Open a dead letter of the whole saga, unless one is open for this reason or there is no such saga.

    Raises:
        SagaLockedError: nothing was written.
    """
    if _locked(connection, saga_id) is None:
        return None
    letter = schema.dead_letter
    # No time is fetched here: it may be what can't be read.
    is_open = and_(letter.c.step.is_(None), letter.c.closed_time.is_(None))
    known = connection.execute(select(letter.c.reason, is_open).where(letter.c.saga_id == saga_id)).all()
    if (reason.value, True) in {(told, bool(is_open)) for told, is_open in known}:
        return None
    letter_id = DeadLetterId(f"{saga_id}/-/-/{len(known) + 1}")
    row = {
        "id": letter_id,
        "saga_id": saga_id,
        "position": len(known),
        "reason": reason.value,
        "last_error": rows.clean(last_error),
        "opened_time": now,
    }
    connection.execute(insert(letter), row)
    _change_saga(connection, saga_id, {"attention_required": True, "updated_time": now})
    return letter_id


def put_dead_letters(
    connection: Connection, *, errors: Mapping[SagaId, str], reason: DeadLetterReason, now: Instant
) -> list[DeadLetterId | None]:
    """The same for several sagas, with what happened to each; those whose rows somebody keeps locked are left out."""
    opened: list[DeadLetterId | None] = []
    for saga_id, last_error in errors.items():
        with suppress(SagaLockedError):
            opened.append(put_dead_letter(connection, saga_id, reason=reason, last_error=last_error, now=now))
    return opened


def _locked(connection: Connection, saga_id: SagaId) -> RowMapping | None:
    """The saga's own columns, locked until the transaction ends; None where there is no such saga.

    Raises:
        SagaLockedError: somebody else has them locked.
    """
    saga = schema.saga
    columns = (
        saga.c.version,
        saga.c.state,
        saga.c.abort_requested,
        saga.c.point_of_no_return_passed,
        saga.c.failure_time.is_(None).label("is_without_failure"),
    )
    found = select(*columns).where(saga.c.id == saga_id).with_for_update(key_share=True, skip_locked=True)
    row = connection.execute(found).mappings().first()
    if row is None and connection.execute(select(saga.c.id).where(saga.c.id == saga_id)).first() is not None:
        raise SagaLockedError(f"saga {saga_id}: another session keeps its row locked")
    return row


def _change_saga(connection: Connection, saga_id: SagaId, changes: dict[str, object]) -> None:
    saga = schema.saga
    connection.execute(update(saga).where(saga.c.id == saga_id).values(version=saga.c.version + 1, **changes))


def _is_audited(connection: Connection, audit: AuditEntry) -> bool:
    entries = schema.audit_entry
    return bool(connection.execute(select(func.count()).where(entries.c.id == audit.id)).scalar())


def _put_audit(connection: Connection, audit: AuditEntry) -> None:
    row = {
        "id": audit.id,
        "saga_id": audit.saga_id,
        "dead_letter_id": audit.dead_letter_id,
        "verb": audit.verb,
        "actor": rows.clean(audit.actor),
        "claimed_actor": rows.clean(audit.claimed_actor),
        "reason": rows.clean(audit.reason),
        "details": rows.clean(audit.details),
        "created_time": audit.created_time,
    }
    connection.execute(insert(schema.audit_entry), row)


def _named(columns: Sequence[str], values: Sequence[rows.Row]) -> list[dict[str, object]]:
    return [dict(zip(columns, row, strict=True)) for row in values]


def _as_it_is(value: Instant | None) -> object:
    """SQLAlchemy's own types turn instants into what the driver takes."""
    return value
