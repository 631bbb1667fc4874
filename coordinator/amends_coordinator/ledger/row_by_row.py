"""Statements for many rows where each row costs an execution and nothing more: a database in the same process."""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, update

from amends_coordinator.ledger import direct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import BindParameter, Column, Connection, Select, Table
    from sqlalchemy.engine import Dialect
    from sqlalchemy.sql.elements import ClauseElement

    from amends_coordinator.ledger.dialect import SqlDialect
    from amends_coordinator.ledger.rows import Row

_ROW_ID = "row_id"


class Direct:
    """A statement that is compiled once and goes straight to the driver.

    Args:
        statement: every value of it is a named parameter.
        names: the parameters in the order in which `run` and `fetch` get their values.
    """

    def __init__(self, statement: ClauseElement, names: Sequence[str], dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=list(names))
        self._text = str(compiled)
        taken = tuple(getattr(compiled, "positiontup", ()))  # only compilers of positional dialects have one
        self._permuted = None if taken == tuple(names) else _permutation(taken, names)

    def run(self, connection: Connection, values: Sequence[Row]) -> None:
        """Execute it for each row of values; nothing is sent for no row."""
        if values:
            direct.execute_many(connection, self._text, [self._ordered(row) for row in values])

    def fetch(self, connection: Connection, values: Row) -> list[Any]:
        """Execute it once and answer its rows (Any: what is in them is the statement's business)."""
        return direct.fetch(connection, self._text, self._ordered(values))

    def _ordered(self, row: Row) -> Row:
        """The values of a row in the order in which the statement takes them."""
        return row if self._permuted is None else self._permuted(row)


class RowByRow:
    """Implements `dialect.ManyRows`: compiled once, executed per row; sets of ids as lists of parameters."""

    def __init__(self, dialect: SqlDialect, compiler: Dialect) -> None:
        self._dialect = dialect
        self._compiler = compiler

    def insert_new(self, table: Table, columns: Sequence[str]) -> Direct:
        """See the protocol."""
        return Direct(self._dialect.insert_new(table), columns, self._compiler)

    def insert_or_update(
        self, table: Table, columns: Sequence[str], *, key: Sequence[str], changed: Sequence[str]
    ) -> Direct:
        """See the protocol."""
        return Direct(self._dialect.insert_or_update(table, key=key, changed=changed), columns, self._compiler)

    def update_by_id(self, table: Table, changed: Sequence[str]) -> Direct:
        """See the protocol."""
        values: dict[str, BindParameter[Any]] = {name: bindparam(name) for name in changed}
        statement = update(table).where(table.c.id == bindparam(_ROW_ID)).values(values)
        return Direct(statement, (*changed, _ROW_ID), self._compiler)

    def select_by_id(self, question: Select[*tuple[Any, ...]], id_column: Column[Any]) -> PaddedIds:
        """See the protocol."""
        return PaddedIds(question, id_column, self._compiler)


class PaddedIds:
    """A question about a list of ids, compiled for few lengths of it."""

    def __init__(self, question: Select[*tuple[Any, ...]], id_column: Column[Any], compiler: Dialect) -> None:
        self._question = question
        self._id_column = id_column
        self._compiler = compiler
        self._of_size = lru_cache(self._compile)

    def fetch(self, connection: Connection, ids: Sequence[str]) -> list[Any]:
        """See `dialect.IdsStatement`."""
        padded = _padded(ids)
        return self._of_size(len(padded)).fetch(connection, tuple(padded))

    def _compile(self, size: int) -> Direct:
        names = [f"id_{number}" for number in range(size)]
        chosen = self._id_column.in_([bindparam(name, type_=self._id_column.type) for name in names])
        return Direct(self._question.where(chosen), names, self._compiler)


def _permutation(taken: Sequence[str], names: Sequence[str]) -> Callable[[Row], Row]:
    """Brings a row from the order of the names into the one in which the statement takes them (at least two)."""
    permuted: Callable[[Row], Row] = itemgetter(*[names.index(name) for name in taken])
    return permuted


def _padded(ids: Sequence[str]) -> list[str]:
    """The ids, the last one repeated until a power of two: so few sizes are ever compiled."""
    size = 1 << (len(ids) - 1).bit_length()
    return [*ids, *[ids[-1]] * (size - len(ids))]
