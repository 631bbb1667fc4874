"""The questions that are asked of the ledger. What is asked for many sagas costs a fixed number of queries."""

from __future__ import annotations

import heapq
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

import structlog
from sqlalchemy import Select, bindparam, func, literal, select, tuple_

from amends_coordinator.core.ids import Instant, SagaId
from amends_coordinator.core.states import SagaState
from amends_coordinator.ledger import schema, values
from amends_coordinator.ledger.instants import InstantType
from amends_coordinator.ports.ledger import (
    DefinitionPage,
    InstanceRow,
    Page,
    ParticipantRow,
    StoredSaga,
    UnreadableSagaError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, RowMapping, Table

    from amends_coordinator.core.definition import StoredDefinition
    from amends_coordinator.core.ids import DefinitionVersion
    from amends_coordinator.ledger.plans import Plans

CHUNK = 500
"""Sagas per query at most."""

_log: Any = structlog.get_logger(__name__)  # structlog's loggers are untyped proxies


def load(connection: Connection, ids: Sequence[SagaId], plans: Plans) -> dict[SagaId, StoredSaga | UnreadableSagaError]:
    """Sagas with everything that hangs on them; what isn't there is left out."""
    found: dict[SagaId, StoredSaga | UnreadableSagaError] = {}
    for start in range(0, len(ids), CHUNK):
        chunk = {"ids": list(ids[start : start + CHUNK])}
        rows = connection.execute(_SAGAS, chunk).mappings().all()
        labels = _by_saga(connection, _LABELS, chunk)
        intents = _by_saga(connection, _INTENTS, chunk)
        letters = _by_saga(connection, _DEAD_LETTERS, chunk)
        for row in rows:
            saga_id = SagaId(row["id"])
            found[saga_id] = _saga(connection, row, plans, labels, intents, letters)
    return found


def _saga(
    connection: Connection,
    row: RowMapping,
    plans: Plans,
    labels: Mapping[str, Sequence[RowMapping]],
    intents: Mapping[str, Sequence[RowMapping]],
    letters: Mapping[str, Sequence[RowMapping]],
) -> StoredSaga | UnreadableSagaError:
    saga_id = row["id"]
    if row["format"] > schema.FORMAT:
        return UnreadableSagaError(
            f"saga {saga_id} has format {row['format']}, this release knows {schema.FORMAT}: run a newer one"
        )
    try:
        return values.stored_saga(
            row,
            plan=plans.get(connection, row["definition_name"], row["definition_version"]),
            labels={label["key"]: label["value"] for label in labels.get(saga_id, ())},
            intents=intents.get(saga_id, ()),
            dead_letters=letters.get(saga_id, ()),
        )
    except UnreadableSagaError as error:
        return error
    except (KeyError, TypeError, ValueError) as error:
        return UnreadableSagaError(
            f"saga {saga_id} can't be read by this release ({error!r}): run the one that wrote it"
        )


def _by_saga(connection: Connection, statement: Select[Any], chunk: dict[str, Any]) -> dict[str, list[RowMapping]]:
    rows = connection.execute(statement, chunk).mappings()
    return {saga_id: list(group) for saga_id, group in groupby(rows, key=lambda row: row["saga_id"])}


def list_sagas(
    connection: Connection,
    plans: Plans,
    *,
    states: frozenset[SagaState],
    limit: int,
    before: tuple[Instant, SagaId] | None,
) -> Page:
    """One page. Each state is asked for by itself, because only so an index gives its newest without a sort."""
    pages = [_newest(connection, state, limit + 1, before) for state in sorted(states or SagaState)]
    merged = heapq.merge(*pages, key=_position, reverse=True)
    rows = list(islice(merged, limit + 1))
    shown = rows[:limit]
    chunk = {"ids": [row["id"] for row in shown]}
    labels, letters = _by_saga(connection, _LABELS, chunk), _by_saga(connection, _DEAD_LETTERS, chunk)
    sagas: list[StoredSaga] = []
    for row in shown:
        stored = _saga(connection, row, plans, labels, {}, letters)
        if isinstance(stored, UnreadableSagaError):
            _log.error("saga unreadable", saga_id=row["id"], error=str(stored))
        else:
            sagas.append(stored)
    return Page(sagas=tuple(sagas), next=_position(shown[-1]) if shown and len(rows) > limit else None)


def _newest(
    connection: Connection, state: SagaState, limit: int, before: tuple[Instant, SagaId] | None
) -> Sequence[RowMapping]:
    saga = schema.saga
    statement = select(saga).where(saga.c.state == state.value)
    statement = statement.order_by(saga.c.created_time.desc(), saga.c.id.desc()).limit(limit)
    if before is not None:
        position = tuple_(literal(before[0], InstantType()), literal(before[1]))
        statement = statement.where(tuple_(saga.c.created_time, saga.c.id) < position)
    return connection.execute(statement).mappings().all()


def _position(row: RowMapping) -> tuple[Instant, SagaId]:
    return (row["created_time"], row["id"])


def write_counts(connection: Connection, ids: Sequence[SagaId]) -> dict[SagaId, int]:
    """How often each saga was written: a look at the primary key, and at one number beside it."""
    found: dict[SagaId, int] = {}
    for start in range(0, len(ids), CHUNK):
        rows = connection.execute(_WRITE_COUNTS, {"ids": list(ids[start : start + CHUNK])})
        found.update((SagaId(saga_id), version) for saga_id, version in rows)
    return found


def count_by_state(connection: Connection) -> dict[SagaState, int]:
    """How many sagas are in each state."""
    rows = connection.execute(select(schema.saga.c.state, func.count()).group_by(schema.saga.c.state))
    return {SagaState(state): count for state, count in rows}


def get_definition(connection: Connection, name: str, version: DefinitionVersion | None) -> StoredDefinition | None:
    """A definition by name and version, or the newest by name."""
    table = schema.saga_definition
    statement = select(table).where(table.c.name == name)
    if version is not None:
        statement = statement.where(table.c.version == version)
    newest_first = statement.order_by(table.c.created_time.desc(), table.c.version.desc()).limit(1)
    row = connection.execute(newest_first).mappings().first()
    return None if row is None else values.definition(row)


def list_definitions(
    connection: Connection, *, limit: int, before: tuple[Instant, str, DefinitionVersion] | None
) -> DefinitionPage:
    """One page. What is sorted are keys: contents are big, and only those of the page are read."""
    table = schema.saga_definition
    keys = select(table.c.created_time, table.c.name, table.c.version)
    if before is not None:
        position = tuple_(literal(before[0], InstantType()), literal(before[1]), literal(before[2]))
        keys = keys.where(tuple_(table.c.created_time, table.c.name, table.c.version) < position)
    newest_first = (table.c.created_time.desc(), table.c.name.desc(), table.c.version.desc())
    chosen = connection.execute(keys.order_by(*newest_first).limit(limit + 1)).all()
    shown = [(row.name, row.version) for row in chosen[:limit]]
    whole = select(table).where(tuple_(table.c.name, table.c.version).in_(shown)).order_by(*newest_first)
    found = tuple(values.definition(row) for row in connection.execute(whole).mappings()) if shown else ()
    last = found[-1] if len(chosen) > limit else None
    following = None if last is None else (last.created_time, last.name, last.version)
    return DefinitionPage(definitions=found, next=following)


def participants(connection: Connection) -> tuple[Sequence[ParticipantRow], Sequence[InstanceRow]]:
    """Everybody, in a fixed order."""
    table, instances = schema.participant, schema.participant_instance
    rows = connection.execute(select(table).order_by(table.c.name)).mappings()
    processes = connection.execute(
        select(instances).order_by(instances.c.participant, instances.c.instance_id)
    ).mappings()
    return [values.participant(row) for row in rows], [values.instance(row) for row in processes]


def _of_sagas(table: Table, *order: str) -> Select[Any]:
    chosen = table.c.saga_id.in_(bindparam("ids", expanding=True))
    return select(table).where(chosen).order_by(table.c.saga_id, *(table.c[name] for name in order))


_SAGAS = select(schema.saga).where(schema.saga.c.id.in_(bindparam("ids", expanding=True)))
_WRITE_COUNTS = select(schema.saga.c.id, schema.saga.c.version).where(
    schema.saga.c.id.in_(bindparam("ids", expanding=True))
)
_LABELS = _of_sagas(schema.saga_label, "key")
_INTENTS = _of_sagas(schema.intent, "position")
_DEAD_LETTERS = _of_sagas(schema.dead_letter, "position")
