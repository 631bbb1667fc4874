"""Making and checking the schema. The migrations are in the package, so an installed wheel needs no other file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import inspect, text
from sqlalchemy.exc import DBAPIError

from amends_coordinator.ledger.connection import WriteConnection
from amends_coordinator.ledger.factory import MEMORY_URL, dialect_of
from amends_coordinator.ledger.schema import REVISION
from amends_coordinator.ports.ledger import LedgerError, LedgerSchemaError, LedgerUnavailableError

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from amends_coordinator.ledger.dialect import SqlDialect


def upgrade(url: str) -> None:
    """Bring a ledger's schema to the newest that this release knows, making the database if there is none.

    Repeating it changes nothing. It takes the ledger's lock, so no coordinator runs meanwhile.

    Raises:
        LedgerLockedError: a process uses the ledger.
        LedgerSchemaError: the schema is newer than this release, or what is there is no database.
        LedgerUnavailableError: the database can't be made or reached.
    """
    if url == MEMORY_URL:
        return
    upgrade_database(dialect_of(url))


def upgrade_database(dialect: SqlDialect) -> None:
    """The same, for a database that is known already."""
    _refuse_obstacle(dialect)
    lock = dialect.lock()
    lock.acquire()
    connection = WriteConnection(dialect, dialect.migration_engine())
    try:
        connection.transact(lambda transaction: _migrate(transaction, dialect))
    except CommandError as error:
        raise LedgerSchemaError(
            f"the schema of the ledger at {dialect.place} is unknown to this release ({error}): run a newer one"
        ) from error
    except LedgerUnavailableError as error:
        if isinstance(error.__cause__, DBAPIError):
            raise _can_not_begin(dialect, error.__cause__) from error
        raise
    finally:
        connection.close()
        lock.release()


def configuration() -> Config:
    """Alembic's configuration, without a file."""
    config = Config()
    folder = str(Path(__file__).parent / "migrations")
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def require_database(dialect: SqlDialect) -> None:
    """Raise LedgerSchemaError where there is no database at all, or what can be none."""
    _refuse_obstacle(dialect)
    if not dialect.exists():
        raise LedgerSchemaError(f"there is no ledger at {dialect.place}: run `amends migrate` to make one")


def check_schema(dialect: SqlDialect) -> None:
    """See that the schema is the one that this release knows.

    Raises:
        LedgerSchemaError: it is missing or another one, or what is there is no database.
        LedgerUnavailableError: the database can't be read.
    """
    engine = dialect.reader_engine(1)
    try:
        with engine.connect() as connection:
            _require_suitable(connection, dialect)
            found = _revision(connection)
    except DBAPIError as error:
        raise _can_not_begin(dialect, error) from error
    finally:
        engine.dispose()
    if found is None:
        raise LedgerSchemaError(
            f"the database at {dialect.place} has no ledger in it: run `amends migrate` to make one"
        )
    if found != REVISION:
        raise LedgerSchemaError(
            f"the ledger at {dialect.place} has schema {found}, but this release knows {REVISION}: "
            "run `amends migrate` if the release is newer, or run the release that made the schema"
        )


def _refuse_obstacle(dialect: SqlDialect) -> None:
    obstacle = dialect.obstacle()
    if obstacle is not None:
        raise LedgerSchemaError(
            f"the ledger at {dialect.place} can't be used: {obstacle}; correct that, or name another {dialect.noun}"
        )


def _can_not_begin(dialect: SqlDialect, error: DBAPIError) -> LedgerError:
    """Nothing runs yet that could try again by itself, so what is said differs from what a running ledger says."""
    why = f"the ledger at {dialect.place} can't be used: {dialect.explain(error)}"
    if dialect.is_foreign(error):
        return LedgerSchemaError(f"{why}; name another {dialect.noun}, or restore this one from a backup")
    return LedgerUnavailableError(f"{why}; correct that and start again, or name another {dialect.noun}")


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision


def _require_suitable(connection: Connection, dialect: SqlDialect) -> None:
    why = dialect.unsuitable(connection)
    if why is not None:
        raise LedgerSchemaError(f"the {dialect.noun} at {dialect.place} can't hold a ledger: {why}")


def _migrate(connection: Connection, dialect: SqlDialect) -> None:
    _require_suitable(connection, dialect)
    config = configuration()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
