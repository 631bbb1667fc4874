"""Statements for many rows where each row costs an execution and nothing more: a database in the same process."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import bindparam, text, update

from amends_coordinator.ledger import direct
from amends_coordinator.ledger.dialect import NONE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import BindParameter, Column, Connection, Select, Table
    from sqlalchemy.engine import Dialect
    from sqlalchemy.sql.elements import ClauseElement

    from amends_coordinator.ledger.dialect import SqlDialect
    from amends_coordinator.ledger.rows import Row, Seen, Unlike

T = TypeVar("T")

_KEY = "key_"
"""Tells the parameters of a key from those of columns that are changed."""


class Direct:
    """A statement that is compiled once and goes straight to the driver.

    Args:
        statement: every value of it is a named parameter.
        names: the parameters in the order in which `run` gets their values.
    """

    def __init__(self, statement: ClauseElement, names: Sequence[str], dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=list(names))
        self._text = str(compiled)
        taken = tuple(getattr(compiled, "positiontup", ()))  # only compilers of positional dialects have one
        self._permuted = None if taken == tuple(names) else _permutation(taken, names)

    def run(self, connection: Connection, values: Sequence[Row]) -> int:
        """See `dialect.RowsStatement`."""
        if not values:
            return 0
        rows = values if self._permuted is None else [*map(self._permuted, values)]
        return direct.execute_many(connection, self._text, rows)


class RowByRow:
    """Implements `dialect.ManyRows`: compiled once, executed per row; sets of ids as lists of parameters."""

    def __init__(self, dialect: SqlDialect, compiler: Dialect) -> None:
        self._dialect = dialect
        self._compiler = compiler

    def insert_new(self, table: Table, columns: Sequence[str]) -> Direct:
        """See the protocol."""
        return Direct(self._dialect.insert_new(table), columns, self._compiler)

    def insert_or_update(
        self,
        table: Table,
        columns: Sequence[str],
        *,
        key: Sequence[str],
        changed: Sequence[str],
        constants: Mapping[str, str] = NONE,
    ) -> Direct:
        """See the protocol."""
        statement = self._dialect.insert_or_update(table, key=key, changed=changed)
        if constants:
            statement = statement.values({name: text(value) for name, value in constants.items()})
        return Direct(statement, columns, self._compiler)

    def update(self, table: Table, changed: Sequence[str], *, key: Sequence[str]) -> Direct:
        """See the protocol."""
        values: dict[str, BindParameter[Any]] = {name: bindparam(name) for name in changed}
        statement = update(table).values(values)
        for name in key:
            statement = statement.where(table.c[name] == bindparam(_KEY + name))
        return Direct(statement, (*changed, *(_KEY + name for name in key)), self._compiler)

    def select_by_id(self, question: Select[*tuple[Any, ...]], id_column: Column[Any]) -> PaddedIds:
        """See the protocol."""
        return PaddedIds(question, id_column, self._compiler)

    def select_unlike(self, table: Table) -> UnlikeSeen:
        """See the protocol."""
        return UnlikeSeen(table)


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
        return direct.fetch(connection, self._of_size(len(padded)), padded)

    def _compile(self, size: int) -> str:
        names = [f"id_{number}" for number in range(size)]
        chosen = self._id_column.in_([bindparam(name, type_=self._id_column.type) for name in names])
        return str(self._question.where(chosen).compile(dialect=self._compiler))


class UnlikeSeen:
    """Implements `dialect.UnlikeStatement`. Nothing is ever locked: a writer has the whole file.

    Where every saga is as it was seen there is nothing to fetch. That is worth a statement of its own: whenever SQLite
    hands out a row it lets go of the interpreter, and this thread waits until it gets it back.
    """

    def __init__(self, table: Table) -> None:
        self._table = table.name
        self._of_size = lru_cache(self._text)

    def fetch(self, connection: Connection, seen: Sequence[Seen]) -> dict[str, Unlike | None]:
        """See the protocol."""
        padded = _padded(seen)
        found = direct.fetch(connection, self._of_size(len(padded)), [*chain.from_iterable(padded)])
        return {
            saga_id: None if version is None else (version, owner, written_by)
            for saga_id, version, owner, written_by in found
        }

    def _text(self, size: int) -> str:
        rows, saga = ", ".join(["(?, ?, ?)"] * size), self._table
        return (
            f"SELECT seen.column1, {saga}.version, {saga}.owner, {saga}.written_by "  # noqa: S608 - names of ours only
            f"FROM (VALUES {rows}) AS seen LEFT JOIN {saga} ON {saga}.id = seen.column1 "
            f"WHERE {saga}.version IS NOT seen.column2 OR {saga}.owner IS NOT seen.column3"
        )


def _permutation(taken: Sequence[str], names: Sequence[str]) -> Callable[[Row], Row]:
    """Brings a row from the order of the names into the one in which the statement takes them (at least two)."""
    permuted: Callable[[Row], Row] = itemgetter(*[names.index(name) for name in taken])
    return permuted


def _padded(items: Sequence[T]) -> list[T]:
    """The items, the last one repeated until a power of two: so few sizes are ever compiled."""
    size = 1 << (len(items) - 1).bit_length()
    return [*items, *[items[-1]] * (size - len(items))]
