"""Reads the coordinator's ledger with plain SQL, as an operator would."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from shop.demo.books import Row, query
from shop.demo.claims import COMMITTED, COMPENSATED

if TYPE_CHECKING:
    from pathlib import Path

QUERIES = (
    "SELECT id, definition_name, state, point_of_no_return_passed, compensations_owed, version FROM saga WHERE id = ?",
    "SELECT position, step, direction, state, attempt, method FROM intent WHERE saga_id = ? ORDER BY position",
)
ENDED = frozenset({COMMITTED, COMPENSATED, "COMPENSATION_FAILED"})


def select(ledger: Path, sql: str, saga_id: str) -> tuple[tuple[str, ...], list[Row]]:
    """The names of the columns and the rows that a query about one saga gives."""
    with closing(sqlite3.connect(f"{ledger.as_uri()}?mode=ro", uri=True)) as connection:
        cursor = connection.execute(sql, [saga_id])
        columns = tuple(str(column[0]) for column in cursor.description)
        rows: list[Row] = cursor.fetchall()
    return columns, rows


def saga_ended(ledger: Path, saga_id: str) -> bool:
    """Whether the saga's row says that it ended."""
    rows = query(ledger, "SELECT state FROM saga WHERE id = ?", [saga_id])
    return bool(rows) and rows[0][0] in ENDED


def intent_state(ledger: Path, saga_id: str, step: str) -> str:
    """What the ledger says of a step's action."""
    sql = "SELECT state FROM intent WHERE saga_id = ? AND step = ? AND direction = 'ACTION'"
    rows = query(ledger, sql, [saga_id, step])
    return str(rows[0][0]) if rows else "not announced"
