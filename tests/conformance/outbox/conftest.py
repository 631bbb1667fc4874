"""Every test of this folder that asks for a rig runs on each database; with each kind of session on both by
`make conformance`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from sqlalchemy import delete

from amends.outbox import TABLES
from tests.conformance.outbox.rigs import KINDS, Rig
from tests.postgres import PostgresServer


@pytest.fixture(scope="session")
def shared_database(postgres: PostgresServer) -> str:
    """A database on PostgreSQL for all tests of this folder, which leave its tables as they are."""
    return postgres.url(postgres.create_database()).replace("postgresql:", "postgresql+psycopg:")


@pytest_asyncio.fixture(params=KINDS)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    """A participant's database with an empty outbox."""
    database, _, kind = str(request.param).partition("-")
    url = f"sqlite:///{tmp_path / 'participant.db'}" if database == "sqlite" else shared(request)
    rig = Rig(url, threaded=kind == "sync")
    yield rig
    await rig.alter(*(delete(table) for table in TABLES.sorted_tables))
    await rig.close()


def shared(request: pytest.FixtureRequest) -> str:
    """The database on PostgreSQL, which is only begun by tests that want it."""
    url: str = request.getfixturevalue("shared_database")
    return url
