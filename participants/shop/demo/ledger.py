"""The coordinator's ledger as the demo uses it: where it is, and what plain SQL says of it, as an operator would ask.

It is a SQLite file of the run's own, unless `LEDGER_URL` names a PostgreSQL database. An empty database gets the ledger
and keeps it, so that one can look at it afterwards. Where one is there already this run must not meet the sagas of
another, so it gets a schema of its own, which goes with the run.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool

from shop.demo.claims import COMMITTED, COMPENSATED
from shop.demo.errors import DemoFailedError

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection, Engine

    from shop.demo.books import Row

SETTING = "LEDGER_URL"
QUERIES = (
    "SELECT id, definition_name, state, point_of_no_return_passed, compensations_owed FROM saga WHERE id = :saga_id",
    "SELECT position, step, direction, state, attempt, method FROM intent WHERE saga_id = :saga_id ORDER BY position",
)
ENDED = frozenset({COMMITTED, COMPENSATED, "COMPENSATION_FAILED"})


class DemoLedger:
    """One ledger. `url` is what the coordinator is given, `place` what is printed: it has no password."""

    def __init__(self, url: URL, *, place: str) -> None:
        self.url = url.render_as_string(hide_password=False)
        self.place = place
        self._engine = _engine(url)

    def select(self, sql: str, saga_id: str) -> tuple[tuple[str, ...], list[Row]]:
        """The names of the columns and the rows that a query about one saga gives."""
        with self._engine.connect() as connection:
            result = connection.execute(text(sql), {"saga_id": saga_id})
            rows: list[Row] = [tuple(row) for row in result]
            return tuple(result.keys()), rows

    def saga_ended(self, saga_id: str) -> bool:
        """Whether the saga's row says that it ended."""
        _, rows = self.select("SELECT state FROM saga WHERE id = :saga_id", saga_id)
        return bool(rows) and rows[0][0] in ENDED

    def intent_state(self, saga_id: str, step: str) -> str:
        """What the ledger says of a step's action."""
        _, rows = self.select(
            "SELECT step, state FROM intent WHERE saga_id = :saga_id AND direction = 'ACTION'", saga_id
        )
        return next((str(state) for name, state in rows if name == step), "not announced")

    @property
    def is_made_by_the_coordinator(self) -> bool:
        """Whether the coordinator makes the tables when it starts; else `amends migrate` has to."""
        return self._engine.dialect.name == "sqlite"


def file_ledger(file: Path) -> DemoLedger:
    """A ledger in a SQLite file."""
    return DemoLedger(URL.create("sqlite", database=str(file)), place=f"the file {file.name} there")


@contextmanager
def chosen_ledger(data: Path, *, keep: bool) -> Generator[DemoLedger]:
    """The ledger that `LEDGER_URL` names; without it a file in the folder `data`.

    Raises:
        DemoFailedError: the setting names none that the demo can use.
    """
    named = os.environ.get(SETTING, "")
    if not named:
        yield file_ledger(data / "ledger.db")
        return
    url = _postgresql(named)
    place = f"the database {url.database} on {url.host or 'this machine'}"
    schema = f"amends_demo_{data.name.lower()}"
    engine = _engine(url)
    with _explained(place):
        empty = _is_empty(engine)
        if not empty:
            _execute(engine, f'CREATE SCHEMA "{schema}"')
    if empty:
        yield DemoLedger(url, place=place)
        return
    try:
        own = url.update_query_dict({"options": f"-csearch_path={schema}"})
        yield DemoLedger(own, place=f"the schema {schema} in {place}")
    finally:
        if not keep:
            _execute(engine, f'DROP SCHEMA "{schema}" CASCADE')


def _postgresql(named: str) -> URL:
    try:
        url = make_url(named)
    except (ArgumentError, ValueError):
        url = None
    if url is None or url.get_backend_name() not in {"postgresql", "postgres"}:
        raise DemoFailedError(f"{SETTING} must be postgresql://user:password@host:port/database, or not be set at all")
    return url.set(drivername="postgresql")


def _engine(url: URL) -> Engine:
    """Connections of which each statement is a transaction of its own, made anew each time."""
    driver = "postgresql+psycopg" if url.get_backend_name() == "postgresql" else url.drivername
    return create_engine(url.set(drivername=driver), poolclass=NullPool, isolation_level="AUTOCOMMIT")


def _is_empty(engine: Engine) -> bool:
    with engine.connect() as connection:
        return _count_of_tables(connection) == 0


def _count_of_tables(connection: Connection) -> int:
    counted = connection.execute(text("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()"))
    return int(counted.scalar_one())


def _execute(engine: Engine, statement: str) -> None:
    with engine.connect() as connection:
        connection.execute(text(statement))


@contextmanager
def _explained(place: str) -> Generator[None]:
    try:
        yield
    except DBAPIError as error:
        said = " ".join(str(error.orig).split())
        raise DemoFailedError(f"{place} can't be used ({said}): correct that, or unset {SETTING}") from error
