"""Statements for many rows where each row costs an execution and nothing more: a database in the same process."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, update
from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from sqlalchemy import BindParameter, Column, Connection, Select, Table
    from sqlalchemy.engine import Dialect
    from sqlalchemy.sql.elements import ClauseElement

    from amends_coordinator.ledger.dialect import SqlDialect
    from amends_coordinator.ledger.rows import Row

_ROW_ID = "row_id"


class Prepared:
    """One compiled statement and the order of its parameters.

    Args:
        statement: every value of it is a named parameter.
        names: the parameters in the order in which `fetch` gets their values.
    """

    def __init__(self, statement: ClauseElement, names: Sequence[str], dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=list(names))
        self.text = str(compiled)
        self._names = tuple(names)
        taken = getattr(compiled, "positiontup", None)  # only the SQL compiler of positional dialects has one
        self._positional = taken is not None
        self._permuted = None if taken is None or tuple(taken) == self._names else _permutation(taken, self._names)

    def fetch(self, connection: Connection, values: Row) -> list[Any]:
        """Execute it once and answer its rows (Any: what is in them is the statement's business)."""
        return [*connection.exec_driver_sql(self.text, self.arguments(values))]

    def arguments(self, row: Row) -> Row | dict[str, object]:
        """The values of a row as the driver takes them."""
        if self._permuted is not None:
            return self._permuted(row)
        return row if self._positional else dict(zip(self._names, row, strict=True))


class Direct:
    """A statement that goes to SQLite on SQLAlchemy's connection but without its execution layer, which takes longer
    than SQLite does for these. Errors are SQLAlchemy's all the same.
    """

    def __init__(self, statement: ClauseElement, names: Sequence[str], dialect: Dialect) -> None:
        self._prepared = Prepared(statement, names, dialect)

    def run(self, connection: Connection, values: Sequence[Row]) -> None:
        """Execute it for each row of values; nothing is sent for no row."""
        if values:
            arguments = [self._prepared.arguments(row) for row in values]
            with _translated(self._prepared.text):
                _driver(connection).executemany(self._prepared.text, arguments)

    def fetch(self, connection: Connection, values: Row) -> list[Any]:
        """Execute it once and answer its rows (Any: what is in them is the statement's business)."""
        arguments = self._prepared.arguments(values)
        with _translated(self._prepared.text):
            rows: list[Any] = _driver(connection).execute(self._prepared.text, arguments).fetchall()
        return rows


def _driver(connection: Connection) -> Any:  # Any: SQLAlchemy leaves the drivers' own types open
    return connection.connection.driver_connection


@contextmanager
def _translated(text: str) -> Generator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise DBAPIError.instance(text, None, error, sqlite3.Error, hide_parameters=True) from error


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
