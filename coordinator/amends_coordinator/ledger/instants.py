"""Instants in columns: microseconds in the core, a readable time in UTC to whoever asks with SQL."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import DateTime
from sqlalchemy.types import TypeDecorator, TypeEngine

from amends_coordinator.core.ids import Instant

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the text forms are UTC without saying so, as SQLite's own functions are
_SECOND = timedelta(seconds=1)


@lru_cache(maxsize=8192)
def _second_to_text(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).isoformat(sep=" ")


@lru_cache(maxsize=8192)
def _text_to_second(text: str) -> int:
    return (datetime.fromisoformat(text) - _EPOCH) // _SECOND


@lru_cache(maxsize=16384)
def instant_to_text(instant: Instant) -> str:
    """`2026-11-30 10:15:00.000123`, in UTC: sorts as text and is what SQLite's date functions read.

    Raises:
        OverflowError: the instant is outside the years 1 to 9999.
    """
    second, fraction = divmod(instant, 1_000_000)
    return f"{_second_to_text(second)}.{fraction:06d}"


def text_to_instant(text: str) -> Instant:
    """The reverse of `instant_to_text`."""
    return Instant(_text_to_second(text[:19]) * 1_000_000 + int(text[20:]))


def _encode(value: Instant | None) -> str | None:
    return None if value is None else instant_to_text(value)


def _decode(value: str | None) -> Instant | None:
    return None if value is None else text_to_instant(value)


class InstantType(TypeDecorator[Instant]):
    """An `Instant` in a column of the database's own time type.

    It replaces the processors of `DateTime` as a whole where times are text, because a datetime object between the
    number and the text costs more than everything else that happens to a row.
    """

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = DateTime
    cache_ok: bool | None = True

    def __init__(self) -> None:
        super().__init__(timezone=True)

    def bind_processor(self, dialect: Dialect) -> Any:  # Any: SQLAlchemy's types of processors are private
        """How a value goes into a statement."""
        return _encode if dialect.name == "sqlite" else super().bind_processor(dialect)

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:  # Any: the same
        """How a value comes out of a row."""
        return _decode if dialect.name == "sqlite" else super().result_processor(dialect, coltype)

    def process_bind_param(self, value: Instant | None, dialect: Dialect) -> datetime | None:
        """Where times are a type of their own: a datetime in UTC."""
        del dialect
        return None if value is None else datetime.fromisoformat(instant_to_text(value) + "+00:00")

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> Instant | None:
        """Where times are a type of their own: microseconds from a datetime with a time zone."""
        del dialect
        if value is None:
            return None
        naive = value.replace(tzinfo=None) - (value.utcoffset() or timedelta())
        return Instant((naive - _EPOCH) // timedelta(microseconds=1))
