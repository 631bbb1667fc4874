"""The schema on PostgreSQL: migrated is what the tables say, comments included; what can't be a ledger is refused."""

from __future__ import annotations

from typing import LiteralString

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url

from amends_coordinator.ledger import migrate, open_ledger, schema
from amends_coordinator.ports.ledger import LedgerError, LedgerSchemaError, LedgerUnavailableError
from tests.conformance.ledger.sagas import NODE, plan_of
from tests.postgres import PostgresServer
from tests.unit.ledger.servers import ask

SHAPES: tuple[LiteralString, ...] = (
    """
    SELECT relname, attname, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid), collname,
        col_description(attrelid, attnum)
    FROM pg_attribute JOIN pg_class ON attrelid = pg_class.oid LEFT JOIN pg_collation ON attcollation = pg_collation.oid
        LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND attnum > 0 AND relname <> 'alembic_version'
    """,
    """
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text <> 'alembic_version'
    """,
    "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename <> 'alembic_version'",
    """
    SELECT relname, obj_description(oid) FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'alembic_version'
    """,
)


def shape(url: str) -> list[list[str]]:
    """What the server's own catalogs say of the tables, columns, constraints, indexes and comments."""
    return [sorted(map(str, ask(url, question))) for question in SHAPES]


def test_migrated_is_what_the_tables_say(postgres_ledger: str, postgres_database: str) -> None:
    """A database that was migrated and one made from the MetaData are the same to the server."""
    engine = create_engine(make_url(postgres_database).set(drivername="postgresql+psycopg"))
    schema.metadata.create_all(engine)
    engine.dispose()
    made, migrated = shape(postgres_database), shape(postgres_ledger)
    assert made == migrated
    assert len(made[0]) > 60


def test_ids_sort_as_they_do_in_python(postgres_ledger: str) -> None:
    """Pages of several states are merged by id outside the database, whatever language the database sorts in."""
    collations = ask(
        postgres_ledger,
        "SELECT DISTINCT collation_name FROM information_schema.columns WHERE table_schema = 'public' "
        "AND (column_name = 'saga_id' OR (table_name, column_name) = ('saga', 'id'))",
    )
    assert collations == [("C",)]


def test_upgrade_repeats(postgres_database: str) -> None:
    """Upgrading twice changes nothing."""
    migrate.upgrade(postgres_database)
    first = shape(postgres_database)
    migrate.upgrade(postgres_database)
    assert shape(postgres_database) == first


async def refusal(url: str, kind: type[LedgerError]) -> str:
    """Why the ledger can't be opened."""
    with pytest.raises(kind) as opening:
        await open_ledger(url).open(NODE, plans=plan_of)
    return str(opening.value)


async def test_a_database_without_a_ledger(postgres_database: str) -> None:
    """A database that is somebody else's is left alone, and the sentence says how a ledger is made in it."""
    assert "has no ledger in it: run `amends migrate`" in await refusal(postgres_database, LedgerSchemaError)
    assert ask(postgres_database, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]


async def test_an_unknown_schema(postgres_database: str) -> None:
    """A newer release's schema is neither used nor migrated."""
    migrate.upgrade(postgres_database)
    ask(postgres_database, "UPDATE alembic_version SET version_num = '9999'")
    assert "9999" in await refusal(postgres_database, LedgerSchemaError)
    with pytest.raises(LedgerSchemaError, match="unknown to this release"):
        migrate.upgrade(postgres_database)


async def test_a_database_that_is_not_there(postgres: PostgresServer) -> None:
    """Nobody makes databases by accident: the sentence says how one is made."""
    url = postgres.url("missing")
    assert await refusal(url, LedgerUnavailableError) == (
        f"the ledger at postgresql://127.0.0.1:{postgres.port}/missing can't be used: there is no such database: make "
        "it with createdb; correct that and start again, or name another database"
    )
    with pytest.raises(LedgerUnavailableError, match="make it with createdb"):
        migrate.upgrade(url)


async def test_a_database_that_can_not_hold_every_text(postgres: PostgresServer) -> None:
    """B3: texts of participants come in every script, so a database that takes only some is refused from the start."""
    with postgres.connect("postgres") as connection:
        connection.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        assert "its encoding is LATIN1" in await refusal(postgres.url("latin"), LedgerSchemaError)
        with pytest.raises(LedgerSchemaError, match="createdb --encoding=UTF8"):
            migrate.upgrade(postgres.url("latin"))
    finally:
        postgres.drop_database("latin")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:s3cret@127.0.0.1:1/ledger",
        "postgresql://ada@127.0.0.1:1/ledger?password=s3cret",
        "postgresql://ada:s3cret@127.0.0.1:1/ledger?nonsense=s3cret",
        "postgresql://ada:s3cret@/ledger?host=127.0.0.1&port=1",
    ],
)
async def test_no_error_shows_the_password(url: str) -> None:
    """A server that can't be reached is named, and its password is not."""
    for told in (await refusal(url, LedgerUnavailableError), _migration_refused(url)):
        assert "127.0.0.1" in told
        assert "s3cret" not in told


def _migration_refused(url: str) -> str:
    with pytest.raises(LedgerUnavailableError) as caught:
        migrate.upgrade(url)
    return str(caught.value)
