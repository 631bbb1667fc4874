"""The schema: migrated is what the tables say, everything is commented, and an unknown one is refused."""

from __future__ import annotations

import io
import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, create_mock_engine
from sqlalchemy.engine import make_url

from amends_coordinator.ledger import migrate, schema
from amends_coordinator.ledger.sql import SqlLedger
from amends_coordinator.ledger.sqlite import SqliteDialect
from amends_coordinator.ports.ledger import LedgerLockedError, LedgerSchemaError, LedgerUnavailableError
from tests.conformance.ledger.sagas import NODE, plan_of
from tests.unit.ledger.databases import make_file, open_file, query


def shape(path: Path) -> list[tuple[object, ...]]:
    """What SQLite knows of a database, but for Alembic's own table."""
    rows = query(path, "SELECT type, name, sql FROM sqlite_master WHERE tbl_name <> 'alembic_version' ORDER BY 1, 2")
    return [(kind, name, None if sql is None else normal(str(sql))) for kind, name, sql in rows]


def normal(sql: str) -> str:
    """The statement without the layout that differs between the two ways to it; constraints in one order."""
    flat = re.sub(r"\s+", " ", sql).strip().rstrip(";")
    start, _, rest = flat.partition(" (")
    return start + " (" + ", ".join(sorted(re.split(r", (?![^(]*\))", rest.removesuffix(")").strip())))


def test_migrated_is_what_the_tables_say(tmp_path: Path) -> None:
    """A database that was migrated and one made from the MetaData are the same."""
    migrate.upgrade(f"sqlite:///{tmp_path / 'migrated.sqlite3'}")
    engine = create_engine(f"sqlite:///{tmp_path / 'made.sqlite3'}")
    schema.metadata.create_all(engine)
    engine.dispose()
    assert shape(tmp_path / "migrated.sqlite3") == shape(tmp_path / "made.sqlite3")


def test_migrated_is_what_the_tables_say_with_comments() -> None:
    """The same where the database keeps comments: PostgreSQL's statements, made without one."""
    written: list[str] = []

    def collect(statement: Any, *values: object, **options: object) -> None:  # Any: some DDL element
        written.append(normal(str(statement.compile(dialect=engine.dialect))))

    engine = create_mock_engine("postgresql+psycopg://", collect)
    schema.metadata.create_all(engine, checkfirst=False)
    output = io.StringIO()
    config = Config(output_buffer=output)
    config.set_main_option("script_location", str(Path(migrate.__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["dialect_name"] = "postgresql"
    command.upgrade(config, "head", sql=True)
    migrated = [normal(statement) for statement in output.getvalue().split(";\n") if "alembic_version" not in statement]
    migrated = [re.sub(r"^-- .*?(?=(CREATE|COMMENT|ALTER|DROP|UPDATE))", "", statement) for statement in migrated]
    assert sorted(come_to(statement for statement in migrated if statement.strip(" ("))) == sorted(written)


def come_to(statements: Iterable[str]) -> Iterable[str]:
    """The statements that make at once what these make one after the other: tables with the columns that were added
    later, and no index that was dropped.
    """
    made: dict[str, str] = {}
    for statement in statements:
        words = statement.split()
        if words[0] == "UPDATE":
            continue  # rows, not the schema
        if words[:2] == ["ALTER", "TABLE"]:
            table = f"CREATE TABLE {words[2]}"
            column = statement.rstrip(" (").partition(" ADD COLUMN ")[2]
            made[table] = normal(f"{made[table].removesuffix(')')}, {column})")
        elif words[:2] == ["DROP", "INDEX"]:
            made.pop(f"CREATE INDEX {words[2].rstrip(' (')}")
        else:
            made[statement if words[0] == "COMMENT" else " ".join(words[:3])] = statement
    return made.values()


def test_everything_is_commented() -> None:
    """An operator learns from the database itself what every table and column is."""
    bare = [table.name for table in schema.metadata.sorted_tables if not table.comment]
    bare += [str(column) for table in schema.metadata.sorted_tables for column in table.columns if not column.comment]
    assert bare == []


def test_this_release_knows_the_newest_revision() -> None:
    """`schema.REVISION` is what migrations lead to."""
    assert ScriptDirectory.from_config(migrate.configuration()).get_heads() == [schema.REVISION]


def test_upgrade_repeats_and_needs_the_lock(tmp_path: Path) -> None:
    """Upgrading twice changes nothing; memory needs none."""
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    migrate.upgrade(url)
    migrate.upgrade(url)
    migrate.upgrade("memory:")


async def test_upgrade_waits_for_no_running_coordinator(tmp_path: Path) -> None:
    """A ledger that a coordinator uses is not changed under it."""
    path = make_file(tmp_path)
    ledger = await open_file(path)
    with pytest.raises(LedgerLockedError):
        migrate.upgrade(f"sqlite:///{path}")
    await ledger.close()


def ledger_of(path: Path) -> SqlLedger:
    """A ledger that nobody has opened."""
    return SqlLedger(SqliteDialect(make_url(f"sqlite:///{path}")))


def files_in(folder: Path) -> list[str]:
    """The names of what is there."""
    return [path.name for path in folder.iterdir()]


async def test_no_database_is_refused(tmp_path: Path) -> None:
    """Where there is no ledger, none is made by accident, and the sentence says how one is made."""
    path = tmp_path / "missing.sqlite3"
    with pytest.raises(LedgerSchemaError, match="amends migrate"):
        await ledger_of(path).open(NODE, plans=plan_of)
    assert files_in(tmp_path) == []


async def test_an_empty_database_is_refused(tmp_path: Path) -> None:
    """A database that is somebody else's is left alone."""
    path = tmp_path / "other.sqlite3"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE something (id INTEGER)")
    with pytest.raises(LedgerSchemaError, match="has no ledger in it"):
        await ledger_of(path).open(NODE, plans=plan_of)


async def test_an_unknown_schema_is_refused(tmp_path: Path) -> None:
    """A newer release's schema is neither used nor migrated; afterwards the lock is free."""
    path = make_file(tmp_path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(LedgerSchemaError, match="9999"):
        await ledger_of(path).open(NODE, plans=plan_of)
    with pytest.raises(LedgerSchemaError, match="unknown to this release"):
        migrate.upgrade(f"sqlite:///{path}")


async def refusal(path: Path) -> str:
    """Why the ledger can't be opened, which is a `LedgerSchemaError`; migrating has to say the same."""
    with pytest.raises(LedgerSchemaError) as opening:
        await ledger_of(path).open(NODE, plans=plan_of)
    with pytest.raises(LedgerSchemaError) as migrating:
        migrate.upgrade(f"sqlite:///{path}")
    assert str(opening.value) == str(migrating.value)
    return str(opening.value)


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    """Garbage is said to be garbage, with what to do; nobody promises to try again by himself."""
    path = tmp_path / "notes.txt"
    path.write_text("these are not the rows you are looking for\n" * 100)
    assert await refusal(path) == (
        f"the ledger at {path} can't be used: the file is not a SQLite database; name another file, or restore this "
        "one from a backup"
    )


async def test_a_directory_is_no_ledger(tmp_path: Path) -> None:
    """A path that was cut off too early is said to be one; nothing is made beside it."""
    path = tmp_path / "ledger"
    path.mkdir()
    assert await refusal(path) == (
        f"the ledger at {path} can't be used: it is a directory, not a file; correct that, or name another file"
    )
    assert files_in(tmp_path) == ["ledger"]


async def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger of another user is said to be out of reach, before anything of it is touched."""
    path = make_file(tmp_path)

    def may_not(of: Path, mode: int) -> bool:
        return False

    # Root may read every file, so the answer of the operating system is planted.
    monkeypatch.setattr("os.access", may_not)
    assert await refusal(path) == (
        f"the ledger at {path} can't be used: this process may not read and write the file; "
        "correct that, or name another file"
    )
    assert files_in(tmp_path) == [path.name]


async def test_a_database_that_another_process_keeps(tmp_path: Path) -> None:
    """What may pass is no schema's fault; at the start nobody tries again by himself, and nothing says so."""
    path = tmp_path / "ledger.sqlite3"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LedgerUnavailableError, match="keeps writing to the file; correct that and start again"):
            migrate.upgrade_database(SqliteDialect(make_url(f"sqlite:///{path}"), busy_timeout_ms=10))


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    """The message names the file and what to do."""
    with pytest.raises(LedgerUnavailableError, match="make its folder"):
        migrate.upgrade(f"sqlite:///{tmp_path / 'missing' / 'ledger.sqlite3'}")
