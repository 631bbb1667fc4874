"""The demo's SQL speaks of tables and columns that the ledger has."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine

from amends_coordinator.ledger.schema import metadata
from shop.demo.ledger import QUERIES, intent_state, saga_ended, select


@pytest.fixture
def empty_ledger(tmp_path: Path) -> Path:
    """A ledger without sagas."""
    path = tmp_path / "ledger.db"
    engine = create_engine(f"sqlite:///{path}")
    metadata.create_all(engine)
    engine.dispose()
    return path


@pytest.mark.parametrize("sql", QUERIES)
def test_the_queries_that_are_shown_can_be_asked(empty_ledger: Path, sql: str) -> None:
    """Rows are shown under the names of their columns."""
    columns, rows = select(empty_ledger, sql, "order-4")
    assert "state" in columns
    assert rows == []


def test_a_saga_that_is_not_there_has_not_ended(empty_ledger: Path) -> None:
    """L1: the demo waits for an end that the ledger records, not for the absence of one."""
    assert not saga_ended(empty_ledger, "order-4")
    assert intent_state(empty_ledger, "order-4", "authorize") == "not announced"
