"""The statements of lists of sagas, each made once: to make one takes longer than to answer it.

What differs from one list to the next are values. `lanes` says which; their names are those of the parameters here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Integer,
    and_,
    bindparam,
    func,
    literal_column,
    or_,
    select,
    tuple_,
)

from amends_coordinator.core.states import SagaState
from amends_coordinator.ledger import schema
from amends_coordinator.ledger.damage import is_sound
from amends_coordinator.ledger.instants import InstantType

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import ColumnCollection, FromClause, Select, Table

    Columns = ColumnCollection[str, Any]

Shape = tuple[str, int, int]
"""A condition but for its values: its kind, and two numbers that some kinds have."""

STATES = len(SagaState)
"""So many states a condition names; where it is about fewer, the last one is repeated."""

CACHED = 512

_saga, _label, _chosen = schema.saga, schema.saga_label, schema.saga_participant


class Index(NamedTuple):
    """An index of sagas, newest first, with the conditions under which it is used. `is_sorted_here`: it has another
    order, so that what it finds has to be sorted.
    """

    table: Table
    id_name: str
    where: tuple[ColumnElement[bool], ...]
    is_sorted_here: bool = False


def _literally(condition: str) -> ColumnElement[bool]:
    """The condition of an index, as it has to be repeated for the index to be used."""
    return literal_column(condition)


def _instant(name: str) -> BindParameter[Any]:
    return bindparam(name, type_=InstantType())


_of_state = _saga.c.state == bindparam("state")
_settled = _literally(schema.SETTLED)
_written = and_(
    _saga.c.updated_time >= _instant("updated_earliest"), _saga.c.updated_time <= _instant("updated_latest")
)

INDEXES: dict[str, Index] = {
    "ix_saga_state": Index(_saga, "id", (_of_state,)),
    "ix_saga_attention": Index(_saga, "id", (_of_state, _literally("attention_required"))),
    "ix_saga_unproven": Index(_saga, "id", (_of_state, _literally("unproven"))),
    "ix_saga_unfinished": Index(_saga, "id", (_of_state, _literally(schema.UNFINISHED))),
    "ix_saga_definition": Index(
        _saga, "id", (_of_state, _settled, _saga.c.definition_name == bindparam("definition_name"))
    ),
    # The name is part of what a version is computed from. Asked for the name as well, PostgreSQL may take the index of
    # names, and go through all of them for an old version.
    "ix_saga_definition_version": Index(
        _saga, "id", (_of_state, _settled, _saga.c.definition_version == bindparam("definition_version"))
    ),
    "ix_saga_updated": Index(_saga, "id", (_of_state, _settled, _written), is_sorted_here=True),
    "ix_saga_label_key": Index(
        _label, "saga_id", (_label.c.key == bindparam("label_key"), _label.c.value == bindparam("label_value"))
    ),
    "ix_saga_participant_participant": Index(_chosen, "saga_id", (_chosen.c.participant == bindparam("participant"),)),
}

_READ_BY_CONDITIONS = (
    "state", "definition_name", "definition_version", "attention_required", "unproven", "compensations_owed",
    "updated_time", "progress_time", "due_time",
)  # fmt: skip
"""What conditions read of a saga's row."""


@lru_cache(CACHED)
def rows(index: str, *, is_below: bool, is_since: bool, sound: str) -> Select[*tuple[Any, ...]]:
    """The positions of an index's rows, newest first: `size` of them, behind the first `skipped`. They begin below a
    position (`below_time`, `below_id`) and go down to an instant (`since`), if they do. `sound`: see `damage`.
    """
    return _rows(index, (), is_below=is_below, is_since=is_since, sound=sound).offset(
        bindparam("skipped", type_=Integer())
    )


@lru_cache(CACHED)
def judged(
    index: str, shapes: tuple[Shape, ...], *, is_below: bool, is_since: bool, sound: str
) -> Select[*tuple[Any, ...]]:
    """The same, of which only those come that fulfil the conditions (`is_wanted`), and the last one (`number` is then
    `size`).
    """
    of, size = INDEXES[index], bindparam("size", type_=Integer())
    if of.table is _saga:
        found: FromClause = _rows(
            index, _READ_BY_CONDITIONS, is_below=is_below, is_since=is_since, sound=sound
        ).subquery()
        columns, asked = found.c, found
    else:
        found = _rows(index, (), is_below=is_below, is_since=is_since, sound=sound).subquery()
        columns, asked = _saga.c, found.join(_saga, _saga.c.id == found.c.id)
    each = (
        select(
            columns.created_time,
            columns.id,
            and_(*(_condition(shape, columns) for shape in shapes)).label("is_wanted"),
            func.row_number().over(order_by=(columns.created_time.desc(), columns.id.desc())).label("number"),
        )
        .select_from(asked)
        .subquery()
        .c
    )
    return select(*each).where(or_(each.is_wanted, each.number == size)).order_by(each.number)


@lru_cache(1)
def written_count() -> Select[*tuple[Any, ...]]:
    """How many settled sagas were written in a span of time; it is counted up to `most`."""
    found = select(_saga.c.id).where(_settled, _written).limit(bindparam("most", type_=Integer()))
    hinted = found.with_hint(_saga, "INDEXED BY ix_saga_updated", "sqlite")
    return select(func.count()).select_from(hinted.subquery())


def _rows(
    index: str, further: tuple[str, ...], *, is_below: bool, is_since: bool, sound: str
) -> Select[*tuple[Any, ...]]:
    of = INDEXES[index]
    table = of.table.c
    columns = (table.created_time, table[of.id_name].label("id"), *(table[name] for name in further))
    found = select(*columns).where(*of.where).with_hint(of.table, f"INDEXED BY {index}", "sqlite")
    created_time: ColumnElement[Any] = table.created_time
    saga_id: ColumnElement[Any] = table[of.id_name]
    if sound:
        found = found.where(is_sound(created_time, sound))
    if of.is_sorted_here:
        # Without an order inside, a database has no reason to take the index that gives the order, and to go through
        # all of it for the few rows that were written in the window.
        inside = found.offset(0).subquery()
        found, created_time, saga_id = select(inside), inside.c.created_time, inside.c.id
    if is_since:
        found = found.where(created_time >= _instant("since"))
    if is_below:
        found = found.where(tuple_(created_time, saga_id) < tuple_(_instant("below_time"), bindparam("below_id")))
    return found.order_by(created_time.desc(), saga_id.desc()).limit(bindparam("size", type_=Integer()))


def _condition(shape: Shape, row: Columns) -> ColumnElement[bool]:
    """What is asked of a saga's row; it is answered from the row alone, or by one look into an index."""
    kind, first, second = shape
    if kind == "participant":
        chosen = (_chosen.c.saga_id == row.id, _chosen.c.participant == bindparam("of_participant"))
        names = row.definition_name.in_(_several("of_name", first))
        is_chosen = _looked_up(*chosen).scalar_subquery().is_not(None)
        return or_(names, row.definition_version.in_(_several("of_one_version", second)), is_chosen)
    if kind == "label":
        return _is_labelled(row, first)
    return _OF_THE_ROW[kind](row)


_OF_THE_ROW: dict[str, Callable[[Columns], ColumnElement[bool]]] = {
    "state": lambda row: row.state.in_(_several("of_state", STATES)),
    "definition_name": lambda row: row.definition_name == bindparam("of_definition_name"),
    "definition_version": lambda row: row.definition_version == bindparam("of_definition_version"),
    "attention": lambda row: row.attention_required,
    "unproven": lambda row: row.unproven,
    "owed": lambda row: row.compensations_owed > 0,
    "updated": lambda row: and_(row.updated_time >= _instant("of_earliest"), row.updated_time <= _instant("of_latest")),
    "stalled": lambda row: and_(row.progress_time <= _instant("of_stalled_since"), _is_unfinished(row)),
}
"""The conditions that have one shape."""


def _is_unfinished(row: Columns) -> ColumnElement[bool]:
    return or_(row.state.not_in([state.value for state in SagaState if state.ended]), row.due_time.is_not(None))


def _is_labelled(row: Columns, number: int) -> ColumnElement[bool]:
    """By the index of labels: its rows lie beside each other, as those of the sagas that are looked at do."""
    there_is = _looked_up(
        _label.c.key == bindparam(f"of_label_key_{number}"),
        _label.c.value == bindparam(f"of_label_value_{number}"),
        _label.c.created_time == row.created_time,
        _label.c.saga_id == row.id,
    )
    return there_is.with_hint(_label, "INDEXED BY ix_saga_label_key", "sqlite").scalar_subquery().is_not(None)


def _several(name: str, count: int) -> list[BindParameter[Any]]:
    return [bindparam(f"{name}_{number}") for number in range(count)]


def _looked_up(*where: ColumnElement[bool]) -> Select[int]:
    """One such row, looked up for each saga: of EXISTS a database might make a walk through all of these rows."""
    return select(literal_column("1", Integer())).where(*where).limit(1)
