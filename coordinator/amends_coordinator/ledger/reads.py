"""The questions that are asked of the ledger. What is asked for many sagas costs a fixed number of queries."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import structlog
from sqlalchemy import Select, bindparam, func, literal, select, tuple_

from amends_coordinator.core.ids import SagaId, StepName
from amends_coordinator.core.saga import STEP_DONE
from amends_coordinator.core.states import Direction, SagaState
from amends_coordinator.ledger import listing, schema, values
from amends_coordinator.ledger.damage import among_sound, is_sound, problem_of
from amends_coordinator.ledger.instants import InstantType
from amends_coordinator.ledger.kinds import require_kinds
from amends_coordinator.ports.ledger import (
    DefinitionPage,
    InstanceRow,
    Page,
    ParticipantRow,
    StoredSaga,
    UnreadableDefinitionError,
    UnreadableSagaError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from sqlalchemy import Connection, RowMapping, Table

    from amends_coordinator.core.definition import StoredDefinition
    from amends_coordinator.core.ids import DefinitionVersion, Instant
    from amends_coordinator.ledger.plans import Plans
    from amends_coordinator.ports.listing import Position, SagaFilter

    Readings: TypeAlias = dict[SagaId, StoredSaga | UnreadableSagaError]

T = TypeVar("T")

MOST_WRITES = 2**63 - 1
"""What is answered instead of a count that is no number: more than anybody knows of, so the saga is looked at."""

CHUNK = 500
"""Sagas per query at most."""

_log: Any = structlog.get_logger(__name__)  # structlog's loggers are untyped proxies


def load(connection: Connection, ids: Sequence[SagaId], plans: Plans) -> dict[SagaId, StoredSaga | UnreadableSagaError]:
    """Sagas with everything that hangs on them; what isn't there is left out."""
    return _in_parts(ids, lambda part: _whole(connection, part, plans))


def _whole(connection: Connection, ids: Sequence[SagaId], plans: Plans) -> Readings:
    chunk = {"ids": list(ids)}
    rows = connection.execute(_SAGAS, chunk).mappings().all()
    labels = _by_saga(connection, _LABELS, chunk)
    intents = _by_saga(connection, _INTENTS, chunk)
    letters = _by_saga(connection, _DEAD_LETTERS, chunk)
    return {SagaId(row["id"]): _saga(connection, row, plans, labels, intents, letters) for row in rows}


def _in_parts(ids: Sequence[SagaId], read: Callable[[Sequence[SagaId]], Readings]) -> Readings:
    """What is read of many sagas, a chunk at a time."""
    found: Readings = {}
    for start in range(0, len(ids), CHUNK):
        found.update(_in_halves(ids[start : start + CHUNK], read))
    return found


def _in_halves(ids: Sequence[SagaId], read: Callable[[Sequence[SagaId]], Readings]) -> Readings:
    """What is read of some sagas. Where a value can't even be fetched, such as a time that is none, the halves are read
    by themselves, until the guilty saga is alone.
    """
    try:
        return read(ids)
    except Exception as error:  # somebody's hand may have written anything
        problem = problem_of(error)
        if problem is None:
            raise
    if len(ids) == 1:
        return {ids[0]: _damaged(ids[0], problem)}
    middle = len(ids) // 2
    return _in_halves(ids[:middle], read) | _in_halves(ids[middle:], read)


def of_later_format(saga_id: str, number: int) -> UnreadableSagaError:
    """What to say of a saga that a later release has written."""
    return UnreadableSagaError(
        f"saga {saga_id} has format {number}, this release knows {schema.FORMAT}: run a newer one"
    )


def _damaged(saga_id: str, problem: str) -> UnreadableSagaError:
    return UnreadableSagaError(
        f"saga {saga_id} can't be read by this release ({problem}): mend its rows, or run the release that wrote them"
    )


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
        return of_later_format(saga_id, row["format"])
    try:
        plan = plans.get(connection, row["definition_name"], row["definition_version"])
    except UnreadableSagaError as error:
        return error
    mine = (labels.get(saga_id, ()), intents.get(saga_id, ()), letters.get(saga_id, ()))
    try:
        require_kinds(schema.saga, (row,))
        for table, rows in zip((schema.saga_label, schema.intent, schema.dead_letter), mine, strict=True):
            require_kinds(table, rows)
        return values.stored_saga(
            row,
            plan=plan,
            labels={label["key"]: label["value"] for label in mine[0]},
            intents=mine[1],
            dead_letters=mine[2],
        )
    except Exception as error:  # noqa: BLE001 - the same
        return _damaged(saga_id, repr(error))


def _by_saga(
    connection: Connection, statement: Select[*tuple[Any, ...]], chunk: dict[str, Any]
) -> dict[str, list[RowMapping]]:
    rows = connection.execute(statement, chunk).mappings()
    return {saga_id: list(group) for saga_id, group in groupby(rows, key=lambda row: row["saga_id"])}


def list_sagas(
    connection: Connection, plans: Plans, wanted: SagaFilter, *, limit: int, before: Position | None
) -> Page:
    """One page; see `listing` for how its sagas are found."""
    positions, following = among_sound(
        connection, "sagas", lambda sound: listing.find(connection, wanted, limit=limit, before=before, sound=sound)
    )
    ids = [saga_id for _, saga_id in positions]
    found: dict[SagaId, StoredSaga] = {}
    for saga_id, stored in _in_parts(ids, lambda part: _summaries(connection, part, plans)).items():
        if isinstance(stored, UnreadableSagaError):
            _log.error("saga unreadable", saga_id=saga_id, error=str(stored))
        else:
            found[saga_id] = stored
    steps: dict[SagaId, frozenset[StepName]] = {}
    unfinished = [saga_id for saga_id, stored in found.items() if stored.saga.state is not SagaState.COMMITTED]
    for start in range(0, len(unfinished), CHUNK):
        steps |= _steps_done(connection, unfinished[start : start + CHUNK])
    sagas = tuple(found[saga_id] for saga_id in ids if saga_id in found)
    return Page(sagas=sagas, next=following, steps_done=steps)


def _summaries(connection: Connection, ids: Sequence[SagaId], plans: Plans) -> Readings:
    """Sagas without their intents."""
    chunk = {"ids": list(ids)}
    labels, letters = _by_saga(connection, _LABELS, chunk), _by_saga(connection, _DEAD_LETTERS, chunk)
    rows = connection.execute(_SAGAS, chunk).mappings().all()
    return {SagaId(row["id"]): _saga(connection, row, plans, labels, {}, letters) for row in rows}


def _steps_done(connection: Connection, ids: Sequence[str]) -> dict[SagaId, frozenset[StepName]]:
    """The steps whose action succeeded or was settled by a person. Of a committed saga they needn't be asked for."""
    rows = connection.execute(_STEPS_DONE, {"ids": ids}) if ids else ()
    return {
        SagaId(saga_id): frozenset(StepName(step) for _, step in group)
        for saga_id, group in groupby(rows, key=lambda row: row[0])
    }


def write_counts(connection: Connection, ids: Sequence[SagaId]) -> dict[SagaId, int]:
    """How often each saga was written: a look at the primary key, and at one number beside it."""
    found: dict[SagaId, int] = {}
    for start in range(0, len(ids), CHUNK):
        rows = connection.execute(_WRITE_COUNTS, {"ids": list(ids[start : start + CHUNK])})
        found.update((SagaId(saga_id), version if type(version) is int else MOST_WRITES) for saga_id, version in rows)
    return found


def count_by_state(connection: Connection) -> dict[SagaState, int]:
    """How many sagas are in each state; those in none that this release knows are left out."""
    rows = connection.execute(select(schema.saga.c.state, func.count()).group_by(schema.saga.c.state))
    known = frozenset(SagaState)
    return {SagaState(state): count for state, count in rows if state in known}


def get_definition(connection: Connection, name: str, version: DefinitionVersion | None) -> StoredDefinition | None:
    """A definition by name and version, or the newest by name.

    Raises:
        UnreadableDefinitionError: it is damaged.
    """
    table = schema.saga_definition
    statement = select(table).where(table.c.name == name)
    if version is not None:
        statement = statement.where(table.c.version == version)
    newest_first = statement.order_by(table.c.created_time.desc(), table.c.version.desc()).limit(1)
    try:
        row = connection.execute(newest_first).mappings().first()
        if row is not None:
            require_kinds(table, (row,))
        return None if row is None else values.definition(row)
    except Exception as error:
        problem = problem_of(error)
        if problem is None:
            raise
        raise UnreadableDefinitionError(name, version or "", problem) from error


def list_definitions(
    connection: Connection, *, limit: int, before: tuple[Instant, str, DefinitionVersion] | None
) -> DefinitionPage:
    """One page. What is sorted are keys: contents are big, and only those of the page are read."""
    return among_sound(
        connection, "definitions", lambda sound: _list_definitions(connection, limit=limit, before=before, sound=sound)
    )


def _list_definitions(
    connection: Connection, *, limit: int, before: tuple[Instant, str, DefinitionVersion] | None, sound: str
) -> DefinitionPage:
    table = schema.saga_definition
    keys = select(table.c.created_time, table.c.name, table.c.version)
    if sound:
        keys = keys.where(is_sound(table.c.created_time, sound))
    if before is not None:
        position = tuple_(literal(before[0], InstantType()), literal(before[1]), literal(before[2]))
        keys = keys.where(tuple_(table.c.created_time, table.c.name, table.c.version) < position)
    newest_first = (table.c.created_time.desc(), table.c.name.desc(), table.c.version.desc())
    chosen = connection.execute(keys.order_by(*newest_first).limit(limit + 1)).all()
    shown = [(row.name, row.version) for row in chosen[:limit]]
    whole = select(table).where(tuple_(table.c.name, table.c.version).in_(shown)).order_by(*newest_first)
    rows = connection.execute(whole).mappings() if shown else ()
    found: tuple[StoredDefinition, ...] = tuple(values.definition(row) for row in rows)
    last = found[-1] if len(chosen) > limit else None
    following = None if last is None else (last.created_time, last.name, last.version)
    return DefinitionPage(definitions=found, next=following)


def participants(connection: Connection) -> tuple[Sequence[ParticipantRow], Sequence[InstanceRow]]:
    """Everybody whose row can be read, in a fixed order."""
    return (
        _readable(connection, schema.participant, values.participant),
        _readable(connection, schema.participant_instance, values.instance),
    )


def _readable(connection: Connection, table: Table, value_of: Callable[[RowMapping], T]) -> list[T]:
    """All rows of a table that can be read, by their key; the others are told of."""
    key = tuple(table.primary_key)
    ordered = select(table).order_by(*key)
    try:
        return _values_of(connection, ordered, table, value_of)
    except Exception as error:
        if problem_of(error) is None:
            raise
    found: list[T] = []
    for row in connection.execute(select(*key).order_by(*key)).all():
        try:
            found += _values_of(connection, select(table).where(tuple_(*key) == tuple_(*row)), table, value_of)
        except Exception as error:
            if (problem := problem_of(error)) is None:
                raise
            _log.error("a damaged row is left out: mend it with SQL", table=table.name, key=list(row), error=problem)
    return found


def _values_of(
    connection: Connection, statement: Select[*tuple[Any, ...]], table: Table, value_of: Callable[[RowMapping], T]
) -> list[T]:
    rows = connection.execute(statement).mappings().all()
    require_kinds(table, rows)
    return [value_of(row) for row in rows]


def _of_sagas(table: Table, *order: str) -> Select[*tuple[Any, ...]]:
    chosen = table.c.saga_id.in_(bindparam("ids", expanding=True))
    return select(table).where(chosen).order_by(table.c.saga_id, *(table.c[name] for name in order))


_SAGAS = select(schema.saga).where(schema.saga.c.id.in_(bindparam("ids", expanding=True)))
_WRITE_COUNTS = select(schema.saga.c.id, schema.saga.c.version).where(
    schema.saga.c.id.in_(bindparam("ids", expanding=True))
)
_STEPS_DONE = (
    select(schema.intent.c.saga_id, schema.intent.c.step)
    .where(
        schema.intent.c.saga_id.in_(bindparam("ids", expanding=True)),
        schema.intent.c.direction == Direction.ACTION.value,
        schema.intent.c.state.in_([state.value for state in STEP_DONE]),
    )
    .order_by(schema.intent.c.saga_id)
)
_LABELS = _of_sagas(schema.saga_label, "key").with_only_columns(
    schema.saga_label.c.saga_id, schema.saga_label.c.key, schema.saga_label.c.value
)
_INTENTS = _of_sagas(schema.intent, "position")
_DEAD_LETTERS = _of_sagas(schema.dead_letter, "position")
