"""Straight to SQLite's driver, on a connection of SQLAlchemy's but past its layers, which take longer than SQLite does.

Errors are SQLAlchemy's all the same.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

P = ParamSpec("P")
T = TypeVar("T")


def execute(connection: Connection, text: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
    """Execute a statement once."""
    return _translated(text, driver_of(connection).execute, text, values)


def fetch(connection: Connection, text: str, values: Sequence[object]) -> list[Any]:
    """Execute a question and answer its rows (Any: what is in them is the statement's business)."""
    return _translated(text, execute(connection, text, values).fetchall)


def execute_many(connection: Connection, text: str, rows: Sequence[Sequence[object]]) -> int:
    """Execute a statement once for each row of values; answers how many rows it changed."""
    return _translated(text, driver_of(connection).executemany, text, rows).rowcount


def commit(connection: Connection) -> None:
    """Commit, whoever began."""
    if connection.in_transaction():  # something in it went through SQLAlchemy, which has to hear of the end
        connection.commit()
    else:
        _translated("COMMIT", driver_of(connection).commit)


def roll_back(connection: Connection) -> None:
    """Roll back, whoever began."""
    if connection.in_transaction():
        connection.rollback()
    else:
        _translated("ROLLBACK", driver_of(connection).rollback)


def know_plain_values() -> None:
    """Tell the driver how it takes flags, bytes and None: as they are. It knows, but of every such value it first asks
    the value itself, at ten times the cost of all else that happens to it.
    """
    sqlite3.register_adapter(bool, int)
    sqlite3.register_adapter(bytes, bytes)
    sqlite3.register_adapter(type(None), _none)


def _none(value: None) -> None:
    return value


def driver_of(connection: Connection) -> sqlite3.Connection:
    """The driver's own connection."""
    driver = connection.connection.driver_connection
    if not isinstance(driver, sqlite3.Connection):
        raise TypeError(f"not a connection of SQLite's driver: {driver!r}")
    return driver


def _translated(text: str, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    try:
        return call(*arguments, **named)
    except sqlite3.Error as error:
        raise DBAPIError.instance(text, None, error, sqlite3.Error, hide_parameters=True) from error
