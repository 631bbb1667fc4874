"""Statements for many rows where a round trip costs more than a row: each column travels as one array.

`unnest` makes rows of the arrays again. So a batch of decisions is a handful of statements, whose texts never change
with the number of rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    DateTime,
    Integer,
    LargeBinary,
    Text,
    any_,
    bindparam,
    func,
    literal_column,
    update,
)
from sqlalchemy import select as select_from
from sqlalchemy.dialects.postgresql import insert

from amends_coordinator.ledger.dialect import NONE
from amends_coordinator.ledger.instants import InstantType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Column, ColumnElement, Connection, Select, Table, TableValuedAlias
    from sqlalchemy.engine import Dialect
    from sqlalchemy.sql.elements import ClauseElement
    from sqlalchemy.types import TypeEngine

    from amends_coordinator.ledger.rows import Row, Seen, Unlike

_IDS = "ids"


class Arrays:
    """Implements `dialect.ManyRows` for PostgreSQL."""

    def __init__(self, compiler: Dialect) -> None:
        self._compiler = compiler

    def insert_new(self, table: Table, columns: Sequence[str]) -> ColumnStatement:
        """See the protocol."""
        given = _given(table, columns)
        rows = insert(table).from_select(list(columns), select_from(*[given.c[name] for name in columns]))
        return self._statement(rows.on_conflict_do_nothing(), columns)

    def insert_or_update(
        self,
        table: Table,
        columns: Sequence[str],
        *,
        key: Sequence[str],
        changed: Sequence[str],
        constants: Mapping[str, str] = NONE,
    ) -> ColumnStatement:
        """See the protocol."""
        given = _given(table, columns)
        values = [*[given.c[name] for name in columns], *map(literal_column, constants.values())]
        rows = insert(table).from_select([*columns, *constants], select_from(*values))
        excluded = {name: rows.excluded[name] for name in changed}
        return self._statement(rows.on_conflict_do_update(index_elements=list(key), set_=excluded), columns)

    def update(self, table: Table, changed: Sequence[str], *, key: Sequence[str]) -> ColumnStatement:
        """See the protocol."""
        given = _given(table, (*changed, *key))
        values = {name: given.c[name] for name in changed}
        statement = update(table).values(values)
        for name in key:
            statement = statement.where(table.c[name] == given.c[name])
        return self._statement(statement, (*changed, *key))

    def select_by_id(self, question: Select[*tuple[Any, ...]], id_column: Column[Any]) -> IdsStatement:
        """See the protocol."""
        return IdsStatement(question.where(_is_any(id_column)), self._compiler)

    def select_unlike(self, table: Table) -> UnlikeSeen:
        """See the protocol."""
        return UnlikeSeen(table, self._compiler)

    def _statement(self, statement: ClauseElement, columns: Sequence[str]) -> ColumnStatement:
        return ColumnStatement(statement, columns, self._compiler)


class ColumnStatement:
    """Writes rows that are given as one array per column."""

    def __init__(self, statement: ClauseElement, columns: Sequence[str], compiler: Dialect) -> None:
        self._text = str(statement.compile(dialect=compiler))
        self._columns = tuple(columns)

    def run(self, connection: Connection, values: Sequence[Row]) -> int:
        """See `dialect.RowsStatement`."""
        if not values:
            return 0
        arrays = map(list, zip(*values, strict=True))
        return connection.exec_driver_sql(self._text, dict(zip(self._columns, arrays, strict=True))).rowcount


class IdsStatement:
    """Asks about rows whose ids are given as one array."""

    def __init__(self, statement: ClauseElement, compiler: Dialect) -> None:
        self._text = str(statement.compile(dialect=compiler))

    def fetch(self, connection: Connection, ids: Sequence[str]) -> list[Any]:
        """See `dialect.IdsStatement`."""
        return [*connection.exec_driver_sql(self._text, {_IDS: list(ids)})]


class UnlikeSeen:
    """Implements `dialect.UnlikeStatement`: locks the rows that nobody has locked, in the order of their ids, and
    compares them here.
    """

    def __init__(self, table: Table, compiler: Dialect) -> None:
        guard = select_from(table.c.id, table.c.version, table.c.owner, table.c.written_by).order_by(table.c.id)
        self._rows = IdsStatement(
            guard.with_for_update(key_share=True, skip_locked=True).where(_is_any(table.c.id)), compiler
        )

    def fetch(self, connection: Connection, seen: Sequence[Seen]) -> dict[str, Unlike | None]:
        """See the protocol."""
        found = {row[0]: row[1:] for row in self._rows.fetch(connection, [saga_id for saga_id, _, _ in seen])}
        return {
            saga_id: found.get(saga_id)
            for saga_id, version, owner in seen
            if saga_id not in found or found[saga_id][:2] != (version, owner)
        }


def _is_any(id_column: Column[Any]) -> ColumnElement[bool]:
    return id_column == any_(bindparam(_IDS, type_=ARRAY(Text())))


def _given(table: Table, columns: Sequence[str]) -> TableValuedAlias:
    """The arrays as a table, with columns of the table that is written."""
    arrays = [bindparam(name, type_=ARRAY(_element(table.c[name]))) for name in columns]
    return func.unnest(*arrays).table_valued(*columns, name="given").render_derived()


def _element(column: Column[Any]) -> TypeEngine[Any]:
    """The type of a column's array. Text has no length in it: a cast to one would cut silently what is too long, while
    the column refuses it.
    """
    kind = column.type
    if isinstance(kind, InstantType):
        return DateTime(timezone=True)
    if isinstance(kind, (BigInteger, Boolean, Integer, LargeBinary)):
        return kind
    return Text()
