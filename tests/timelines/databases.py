"""The databases on which timelines are played."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.ledger.rigs import empty_ledger

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty ledger; the test runs once for each database."""
    if request.param == "sqlite":
        return sqlite_ledger(tmp_path)
    url: str = request.getfixturevalue("postgres_ledger")
    return url


def sqlite_ledger(data: Path) -> str:
    """The URL of an empty ledger in a folder."""
    file = data / "ledger.db"
    file.write_bytes(empty_ledger())
    return f"sqlite:///{file}"
