"""The statements of the write path, compiled once: many rows per statement, and no work of SQLAlchemy's per row.

They go to the driver as they are (`exec_driver_sql`), so the values of a row must be ones that drivers take: text,
numbers, bytes, booleans, None, and instants as `SqlDialect.instant` makes them.
"""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, bindparam, false, select, update

from amends_coordinator.ledger import rows, schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection, Table, Update
    from sqlalchemy.engine import Dialect
    from sqlalchemy.sql.elements import ClauseElement

    from amends_coordinator.ledger.dialect import SqlDialect
    from amends_coordinator.ledger.rows import Row

    Guarded = tuple[str, int, str | None, str]
    Token = tuple[str, str, str, int]

_ROW_ID = "row_id"


class Prepared:
    """One compiled statement and the order of its parameters.

    Args:
        statement: every value of it is a named parameter.
        names: the parameters in the order in which `run` gets their values.
    """

    def __init__(self, statement: ClauseElement, names: Sequence[str], dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=list(names))
        self._text = str(compiled)
        self._names = tuple(names)
        taken = getattr(compiled, "positiontup", None)  # only the SQL compiler of positional dialects has one
        self._positional = taken is not None
        self._permuted = None if taken is None or tuple(taken) == self._names else _permutation(taken, self._names)

    def run(self, connection: Connection, values: Sequence[Row]) -> None:
        """Execute it for each row of values; nothing is sent for no row."""
        if values:
            connection.exec_driver_sql(self._text, [self._arguments(row) for row in values])

    def fetch(self, connection: Connection, values: Row) -> list[Any]:
        """Execute it once and answer its rows (Any: what is in them is the statement's business)."""
        return [*connection.exec_driver_sql(self._text, self._arguments(values))]

    def _arguments(self, row: Row) -> Row | dict[str, object]:
        if self._permuted is not None:
            return self._permuted(row)
        return row if self._positional else dict(zip(self._names, row, strict=True))


class Statements:
    """Every statement that a batch of decisions needs, for one database."""

    def __init__(self, dialect: SqlDialect, compiler: Dialect) -> None:
        self._compiler = compiler
        self.insert_saga = self._prepare(dialect.insert_new(schema.saga), rows.SAGA_COLUMNS)
        self.update_saga = self._prepare(_saga_update(rows.SAGA_CHANGES), (*rows.SAGA_CHANGES, _ROW_ID))
        self.insert_intent = self._prepare(dialect.insert_new(schema.intent), rows.INTENT_COLUMNS)
        self.put_intent = self._prepare(
            dialect.insert_or_update(schema.intent, key=rows.INTENT_KEY, changed=rows.INTENT_CHANGES),
            rows.INTENT_COLUMNS,
        )
        self.put_dead_letter = self._prepare(
            dialect.insert_or_update(schema.dead_letter, key=("id",), changed=rows.DEAD_LETTER_CHANGES),
            rows.DEAD_LETTER_COLUMNS,
        )
        self.insert_dead_letter = self._prepare(dialect.insert_new(schema.dead_letter), rows.DEAD_LETTER_COLUMNS)
        self.insert_label = self._prepare(dialect.insert_new(schema.saga_label), rows.LABEL_COLUMNS)
        node = schema.node
        self.unfenced = self._prepare(
            select(node.c.node_id)
            .where(node.c.node_id == bindparam(_ROW_ID), node.c.fenced == false())
            .with_for_update(read=True),
            (_ROW_ID,),
        )
        self._guard = lru_cache(self._compile_guard)
        self._tokens = lru_cache(self._compile_tokens)

    def guard(self, connection: Connection, ids: Sequence[str]) -> list[Guarded]:
        """Lock the sagas and answer (id, version, owner, written_by) of each that is there and not locked elsewhere."""
        padded = _padded(ids)
        return self._guard(len(padded)).fetch(connection, tuple(padded))

    def tokens(self, connection: Connection, ids: Sequence[str]) -> list[Token]:
        """(id, start_token, written_by, version) of the sagas."""
        padded = _padded(ids)
        return self._tokens(len(padded)).fetch(connection, tuple(padded))

    def _compile_guard(self, size: int) -> Prepared:
        saga = schema.saga
        statement = (
            select(saga.c.id, saga.c.version, saga.c.owner, saga.c.written_by)
            .where(_one_of(schema.saga, size))
            .order_by(saga.c.id)
            .with_for_update(key_share=True, skip_locked=True)
        )
        return self._prepare(statement, _id_names(size))

    def _compile_tokens(self, size: int) -> Prepared:
        saga = schema.saga
        statement = select(saga.c.id, saga.c.start_token, saga.c.written_by, saga.c.version)
        return self._prepare(statement.where(_one_of(saga, size)), _id_names(size))

    def _prepare(self, statement: ClauseElement, names: Sequence[str]) -> Prepared:
        return Prepared(statement, names, self._compiler)


def _permutation(taken: Sequence[str], names: Sequence[str]) -> Callable[[Row], Row]:
    """Brings a row from the order of the names into the one in which the statement takes them (at least two)."""
    permuted: Callable[[Row], Row] = itemgetter(*[names.index(name) for name in taken])
    return permuted


def _saga_update(changed: Sequence[str]) -> Update:
    saga = schema.saga
    return update(saga).where(saga.c.id == bindparam(_ROW_ID)).values({name: bindparam(name) for name in changed})


def _one_of(table: Table, size: int) -> ColumnElement[bool]:
    return table.c.id.in_([bindparam(name, type_=table.c.id.type) for name in _id_names(size)])


def _id_names(size: int) -> list[str]:
    return [f"id_{number}" for number in range(size)]


def _padded(ids: Sequence[str]) -> list[str]:
    """The ids, the last one repeated until a power of two: so few sizes are ever compiled."""
    size = 1 << (len(ids) - 1).bit_length()
    return [*ids, *[ids[-1]] * (size - len(ids))]
