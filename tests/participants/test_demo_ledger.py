"""The demo's SQL speaks of tables and columns that the ledger has."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine

from amends_coordinator.ledger.migrate import upgrade
from amends_coordinator.ledger.schema import metadata
from shop.demo.errors import DemoFailedError
from shop.demo.ledger import QUERIES, DemoLedger, chosen_ledger, file_ledger


@pytest.fixture
def empty_ledger(tmp_path: Path) -> DemoLedger:
    """A ledger without sagas."""
    path = tmp_path / "ledger.db"
    engine = create_engine(f"sqlite:///{path}")
    metadata.create_all(engine)
    engine.dispose()
    return file_ledger(path)


@pytest.mark.parametrize("sql", QUERIES)
def test_the_queries_that_are_shown_can_be_asked(empty_ledger: DemoLedger, sql: str) -> None:
    """Rows are shown under the names of their columns."""
    columns, rows = empty_ledger.select(sql, "order-4")
    assert "state" in columns
    assert rows == []


def test_a_saga_that_is_not_there_has_not_ended(empty_ledger: DemoLedger) -> None:
    """L1: the demo waits for an end that the ledger records, not for the absence of one."""
    assert not empty_ledger.saga_ended("order-4")
    assert empty_ledger.intent_state("order-4", "authorize") == "not announced"


def test_a_named_database_that_is_empty_keeps_the_ledger(
    tmp_path: Path, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever names an empty database finds the run's ledger in it afterwards; what is printed is no secret."""
    monkeypatch.setenv("LEDGER_URL", postgres_database.replace("postgres@", "postgres:s3cret@"))
    with chosen_ledger(tmp_path, keep=False) as ledger:
        assert "s3cret" not in ledger.place
        upgrade(ledger.url)
    assert upgraded(postgres_database) == ["public"]


def test_another_ledger_is_left_alone(tmp_path: Path, postgres_ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S9: where a ledger is already, the run gets a schema of its own, which is gone at its end."""
    monkeypatch.setenv("LEDGER_URL", postgres_ledger)
    with chosen_ledger(tmp_path, keep=False) as ledger:
        upgrade(ledger.url)
        assert ledger.select(QUERIES[0], "order-4")[1] == []
        assert len(upgraded(postgres_ledger)) == 2
    assert upgraded(postgres_ledger) == ["public"]


@pytest.mark.parametrize("named", ["nonsense", "mysql://ada:s3cret@host/x", "postgresql://ada:s3cret@127.0.0.1:1/x"])
def test_a_ledger_that_can_not_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    """The sentence says what to write, and never the password."""
    monkeypatch.setenv("LEDGER_URL", named)
    with pytest.raises(DemoFailedError, match="LEDGER_URL") as caught, chosen_ledger(tmp_path, keep=False):
        pass
    assert "s3cret" not in str(caught.value)


def upgraded(url: str) -> list[str]:
    """The schemas of a database that have a ledger in them."""
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT schemaname::text FROM pg_tables WHERE tablename = 'saga' ORDER BY 1")
        return [str(row[0]) for row in found]
