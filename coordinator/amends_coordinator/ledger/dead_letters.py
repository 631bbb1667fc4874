"""What people ask the ledger: dead letters, the audit, the incarnations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog
from sqlalchemy import ColumnElement, Select, and_, func, literal, select, tuple_

from amends_coordinator.core.ids import DeadLetterId, Instant, NodeId, SagaId
from amends_coordinator.core.states import DeadLetterReason
from amends_coordinator.ledger import schema, values
from amends_coordinator.ledger.damage import among_sound, is_sound, problem_of
from amends_coordinator.ledger.instants import InstantType
from amends_coordinator.ledger.kinds import require_kinds
from amends_coordinator.ledger.rows import clean
from amends_coordinator.ports.ledger import UnreadableSagaError
from amends_coordinator.ports.repairs import AuditEntry, AuditPage, FoundLetter, LetterGroup, LetterPage, NodeRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, RowMapping

    from amends_coordinator.ports.repairs import LetterFilter

_log: Any = structlog.get_logger(__name__)  # structlog's loggers are untyped proxies

_LETTER = schema.dead_letter
_WITH_CALL = _LETTER.join(schema.saga, schema.saga.c.id == _LETTER.c.saga_id).outerjoin(
    schema.intent,
    and_(
        schema.intent.c.saga_id == _LETTER.c.saga_id,
        schema.intent.c.step == _LETTER.c.step,
        schema.intent.c.direction == _LETTER.c.direction,
    ),
)
_called_method = func.coalesce(schema.intent.c.method, "")
_called_code = func.coalesce(schema.intent.c.last_code, "")
_FOUND = select(
    _LETTER, schema.saga.c.definition_name, _called_method.label("method"), _called_code.label("last_code")
).select_from(_WITH_CALL)


def find(connection: Connection, letter_id: DeadLetterId) -> FoundLetter | None:
    """A dead letter by its id.

    Raises:
        UnreadableSagaError: it is damaged.
    """
    try:
        row = connection.execute(_FOUND.where(_LETTER.c.id == letter_id)).mappings().first()
        return None if row is None else _found(row)
    except Exception as error:
        problem = problem_of(error)
        if problem is None:
            raise
        raise UnreadableSagaError(f"dead letter {letter_id} can't be read ({problem}): mend its row") from error


def page(
    connection: Connection, wanted: LetterFilter, *, limit: int, after: tuple[Instant, DeadLetterId] | None
) -> LetterPage:
    """One page, oldest first."""
    return among_sound(
        connection, "dead letters", lambda sound: _page(connection, wanted, limit=limit, after=after, sound=sound)
    )


def _page(
    connection: Connection, wanted: LetterFilter, *, limit: int, after: tuple[Instant, DeadLetterId] | None, sound: str
) -> LetterPage:
    statement = _wanted(_FOUND, wanted, sound).order_by(_LETTER.c.opened_time, _LETTER.c.id).limit(limit + 1)
    if after is not None:
        position = tuple_(literal(after[0], InstantType()), literal(after[1]))
        statement = statement.where(tuple_(_LETTER.c.opened_time, _LETTER.c.id) > position)
    rows = connection.execute(statement).mappings().all()
    shown = rows[:limit]
    further = (shown[-1]["opened_time"], DeadLetterId(shown[-1]["id"])) if len(rows) > limit else None
    readable = (letter for letter in map(_found_or_logged, shown) if letter is not None)
    return LetterPage(letters=tuple(readable), next=further)


def groups(connection: Connection, wanted: LetterFilter) -> Sequence[LetterGroup]:
    """How many there are of each kind."""
    return among_sound(connection, "dead letters", lambda sound: _groups(connection, wanted, sound))


def _groups(connection: Connection, wanted: LetterFilter, sound: str) -> Sequence[LetterGroup]:
    kinds = (_called_method.label("method"), _LETTER.c.reason, _called_code.label("last_code"))
    count, oldest = func.count().label("letters"), func.min(_LETTER.c.opened_time).label("oldest_time")
    columns: list[ColumnElement[Any]] = [*kinds, count, oldest]
    statement = _wanted(select(*columns).select_from(_WITH_CALL), wanted, sound)
    statement = statement.group_by(_called_method, _LETTER.c.reason, _called_code)
    rows = connection.execute(statement.order_by(count.desc(), *kinds)).mappings()
    known = set(DeadLetterReason)
    return [
        LetterGroup(
            method=clean(row["method"]),
            reason=DeadLetterReason(row["reason"]),
            last_code=clean(row["last_code"]),
            count=row["letters"],
            oldest_time=row["oldest_time"],
        )
        for row in rows
        if row["reason"] in known
    ]


def audit_page(
    connection: Connection, saga_id: SagaId | None, *, limit: int, before: tuple[Instant, str] | None
) -> AuditPage:
    """One page, newest first."""
    return among_sound(
        connection,
        "audit entries",
        lambda sound: _audit_page(connection, saga_id, limit=limit, before=before, sound=sound),
    )


def _audit_page(
    connection: Connection, saga_id: SagaId | None, *, limit: int, before: tuple[Instant, str] | None, sound: str
) -> AuditPage:
    table = schema.audit_entry
    statement = select(table).order_by(table.c.created_time.desc(), table.c.id.desc()).limit(limit + 1)
    if sound:
        statement = statement.where(is_sound(table.c.created_time, sound))
    if saga_id is not None:
        statement = statement.where(table.c.saga_id == saga_id)
    if before is not None:
        position = tuple_(literal(before[0], InstantType()), literal(before[1]))
        statement = statement.where(tuple_(table.c.created_time, table.c.id) < position)
    rows = connection.execute(statement).mappings().all()
    shown = rows[:limit]
    further = (shown[-1]["created_time"], shown[-1]["id"]) if len(rows) > limit else None
    return AuditPage(entries=tuple(map(_entry, shown)), next=further)


def nodes(connection: Connection) -> Sequence[NodeRow]:
    """Every incarnation, newest first."""
    return among_sound(connection, "nodes", lambda sound: _nodes(connection, sound))


def _nodes(connection: Connection, sound: str) -> Sequence[NodeRow]:
    table = schema.node
    statement = select(table).order_by(table.c.started_time.desc(), table.c.node_id.desc())
    if sound:
        statement = statement.where(*(is_sound(time, sound) for time in (table.c.started_time, table.c.heartbeat_time)))
    rows = connection.execute(statement).mappings()
    return [
        NodeRow(
            node_id=NodeId(row["node_id"]),
            started_time=row["started_time"],
            heartbeat_time=row["heartbeat_time"],
            fenced=row["fenced"],
        )
        for row in rows
    ]


def _wanted(statement: Select[Any], wanted: LetterFilter, sound: str) -> Select[Any]:
    if sound:
        statement = statement.where(is_sound(_LETTER.c.opened_time, sound), is_sound(_LETTER.c.closed_time, sound))
    if not wanted.closed_too:
        statement = statement.where(_LETTER.c.closed_time.is_(None))
    if wanted.saga_id is not None:
        statement = statement.where(_LETTER.c.saga_id == wanted.saga_id)
    if wanted.reasons:
        statement = statement.where(_LETTER.c.reason.in_(sorted(wanted.reasons)))
    if wanted.method:
        statement = statement.where(_called_method == wanted.method)
    return statement


def _found(row: RowMapping) -> FoundLetter:
    require_kinds(_LETTER, (row,))
    return FoundLetter(
        saga_id=SagaId(row["saga_id"]),
        definition_name=clean(row["definition_name"]),
        letter=values.dead_letter(row),
        method=clean(row["method"]),
        last_code=clean(row["last_code"]),
    )


def _found_or_logged(row: RowMapping) -> FoundLetter | None:
    try:
        return _found(row)
    except (TypeError, ValueError) as error:
        _log.exception("dead letter unreadable", dead_letter_id=row["id"], error=str(error))
        return None


def _entry(row: RowMapping) -> AuditEntry:
    letter_id = row["dead_letter_id"]
    return AuditEntry(
        id=row["id"],
        saga_id=SagaId(row["saga_id"]),
        dead_letter_id=None if letter_id is None else DeadLetterId(letter_id),
        verb=row["verb"],
        actor=row["actor"],
        claimed_actor=row["claimed_actor"],
        reason=row["reason"],
        details=row["details"],
        created_time=row["created_time"],
    )
