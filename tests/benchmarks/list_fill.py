"""Fills a ledger with the sagas of `list_rows`, past the coordinator: as the databases take a million rows fastest."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from itertools import chain, islice
from typing import Protocol

import psycopg
from sqlalchemy import Engine, Index, create_engine, select, text
from sqlalchemy.engine import make_url

from amends_coordinator.core.ids import Instant
from amends_coordinator.ledger import schema
from tests.benchmarks import list_rows
from tests.benchmarks.list_rows import Row, Rows

SLICE = 20_000
TABLES = (schema.saga, schema.saga_label, schema.saga_participant, schema.dead_letter)
Say = Callable[[str], None]


class _Target(Protocol):
    def write(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Add rows to a table."""
        ...


def fill(url: str, count: int, say: Say) -> None:
    """Fill a ledger that has definitions and nothing else; indexes are made when the rows are there."""
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg") if _is_server(url) else url)
    began_s, end = time.monotonic(), Instant(time.time_ns() // 1_000)
    versions = _versions(engine)
    with _without_indexes(engine), _server(url) if _is_server(url) else _file(url) as target:
        sagas = list_rows.sagas(count, versions, end)
        for done, piece in enumerate(iter(lambda: list(islice(sagas, SLICE)), [])):
            _write(target, piece)
            if done % 10 == 0:
                say(f"{done * SLICE:,} of {count:,} sagas after {time.monotonic() - began_s:.0f} s")
    if _is_server(url):
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))  # as a server does by itself in time
    engine.dispose()
    say(f"{count:,} sagas after {time.monotonic() - began_s:.0f} s")


def _write(target: _Target, piece: Sequence[Rows]) -> None:
    def all_of(rows: Iterable[Sequence[Row]]) -> Iterable[Row]:
        return chain.from_iterable(rows)

    target.write("saga", list_rows.SAGA_COLUMNS, [each.saga for each in piece])
    target.write("saga_label", list_rows.LABEL_COLUMNS, all_of(each.labels for each in piece))
    target.write("saga_participant", list_rows.PARTICIPANT_COLUMNS, all_of(each.participants for each in piece))
    target.write("dead_letter", list_rows.LETTER_COLUMNS, all_of(each.letters for each in piece))


def _is_server(url: str) -> bool:
    return url.startswith("postgresql")


def _versions(engine: Engine) -> dict[str, Sequence[str]]:
    definition = schema.saga_definition.c
    rows = select(definition.name, definition.version).order_by(definition.created_time)
    found: dict[str, list[str]] = {}
    with engine.connect() as connection:
        for name, version in connection.execute(rows):
            found.setdefault(name, []).append(version)
    return dict(found)


@contextmanager
def _without_indexes(engine: Engine) -> Generator[None]:
    indexes: list[Index] = [index for table in TABLES for index in table.indexes]
    with engine.begin() as connection:
        for index in indexes:
            index.drop(connection)
    yield
    for index in indexes:
        with engine.begin() as connection:
            index.create(connection)


class _File:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def write(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """See the protocol."""
        marks = ", ".join("?" * len(columns))
        self._connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)
        self._connection.commit()


@contextmanager
def _file(url: str) -> Generator[_File]:
    with closing(sqlite3.connect(make_url(url).database or "")) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -262144")
        yield _File(connection)


class _Server:
    def __init__(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        self._connection = connection

    def write(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """See the protocol."""
        statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN"
        with self._connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            for row in rows:
                copy.write_row(row)
        self._connection.commit()


@contextmanager
def _server(url: str) -> Generator[_Server]:
    with psycopg.connect(url) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield _Server(connection)
