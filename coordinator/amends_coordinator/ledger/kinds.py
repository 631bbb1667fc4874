"""Holds rows to the kinds of their columns: SQLite keeps whatever is put into one. What isn't text, a number or bytes
where it has to be must be noticed before anything is made of it. (Times are checked where they are decoded; a flag is
set by anything that isn't 0.)
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import Boolean, Integer, LargeBinary, String

_BROKEN = re.compile("[\ud800-\udfff]")
"""What bytes that are no UTF-8 are read as."""

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import RowMapping, Table


def require_kinds(table: Table, rows: Iterable[RowMapping]) -> None:
    """Return if the texts, numbers and bytes of these rows are such.

    Raises:
        TypeError: with the column, and what is in it instead.
    """
    kinds = _kinds(table)
    for row in rows:
        for name, kind in kinds.items():
            value = row[name]
            if value is None:
                continue
            if type(value) is not kind:
                raise TypeError(f"{table.name}.{name} is {type(value).__name__}, not {kind.__name__}")
            if isinstance(value, str) and not value.isascii() and _BROKEN.search(value):
                raise TypeError(f"{table.name}.{name} is no UTF-8")


@cache
def _kinds(table: Table) -> Mapping[str, type[object]]:
    kinds: dict[str, type[object]] = {}
    for column in table.columns:
        if isinstance(column.type, LargeBinary):
            kinds[column.name] = bytes
        elif isinstance(column.type, String):
            kinds[column.name] = str
        elif isinstance(column.type, Integer) and not isinstance(column.type, Boolean):
            kinds[column.name] = int
    return kinds
