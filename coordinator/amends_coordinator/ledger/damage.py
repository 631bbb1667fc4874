"""Values that no release has written: somebody's hand has. What they must not do is hide the rows beside them.

A time that is none can't even be fetched, and takes the whole answer of the database with it. So where a list meets
one, it is asked again, for the rows whose times are sound: that costs the list nothing as long as all of them are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import structlog
from sqlalchemy import and_, func, literal, or_
from sqlalchemy.exc import DataError, DBAPIError, SQLAlchemyError

from amends_coordinator.core.ids import Instant
from amends_coordinator.ledger.instants import InstantType

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Column, ColumnElement, Connection

T = TypeVar("T")

FIRST_INSTANT = Instant(-62_135_596_800_000_000)
LAST_INSTANT = Instant(253_402_300_799_999_999)
"""What databases know of time: the years 1 to 9999."""

ANYHOW = ""
"""Stands for the kind of database where nothing is asked about times."""

_log: Any = structlog.get_logger(__name__)  # structlog's loggers are untyped proxies


def problem_of(error: Exception) -> str | None:
    """What is wrong with a value that could not be fetched; None: the error is no value's, but the database's."""
    if isinstance(error, DBAPIError):
        return str(error.orig) if isinstance(error, DataError) else None
    return None if isinstance(error, SQLAlchemyError) else repr(error)


def among_sound(connection: Connection, what: str, ask: Callable[[str], T]) -> T:
    """The answer to a question about many rows, without those whose times are damaged.

    Args:
        connection: where it is asked.
        what: the rows, for the log.
        ask: asks; it is given the kind of database if it is to leave out what `is_sound` isn't true for.
    """
    try:
        return ask(ANYHOW)
    except Exception as error:
        problem = problem_of(error)
        if problem is None:
            raise
    _log.error("rows with a damaged time are left out of a list: mend them with SQL", rows=what, error=problem)
    return ask(connection.dialect.name)


def is_sound(column: Column[Any] | ColumnElement[Any], database: str) -> ColumnElement[bool]:
    """Whether a time, if there is one, can be fetched. (Any: a column's type says nothing here.)"""
    if database == "sqlite":
        second = func.substr(column, 1, 19)
        as_read = func.strftime("%Y-%m-%d %H:%M:%S", second, "+0 days")  # counted anew, so the 30th of February is none
        is_second = and_(as_read == second, second >= literal("0001"))
        return or_(column.is_(None), and_(is_second, func.substr(column, 20).op("GLOB")("." + 6 * "[0-9]")))
    first, last = literal(FIRST_INSTANT, InstantType()), literal(LAST_INSTANT, InstantType())
    return or_(column.is_(None), and_(column >= first, column <= last))
