"""Every test of this folder runs on each database; with each kind of session on both by `make conformance`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from sqlalchemy import create_engine, text

from tests.conformance.barrier.stage import Rig, Stage, make_tables, rig_at, staged
from tests.conformance.combinations import combinations
from tests.postgres import PostgresServer

RIGS = combinations(
    ("sqlite-async", "sqlite-plain", "postgresql-async", "postgresql-plain"), short=("sqlite-plain", "postgresql-async")
)


@pytest.fixture(scope="session")
def barred_postgres(postgres: PostgresServer) -> str:
    """The URL of a database with the tables."""
    url = postgres.url(postgres.create_database()).replace("postgresql:", "postgresql+psycopg:")
    engine = create_engine(url)
    make_tables(engine)
    engine.dispose()
    return url


@pytest.fixture
def empty_postgres(barred_postgres: str) -> Iterator[str]:
    """The same, emptied after the test."""
    yield barred_postgres
    engine = create_engine(barred_postgres)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM amends_barrier; DELETE FROM amends_barrier_horizon; DELETE FROM effect"))
    engine.dispose()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of a file with the tables."""
    url = f"sqlite:///{tmp_path / 'barred.sqlite3'}"
    engine = create_engine(url)
    make_tables(engine)
    engine.dispose()
    return url


@pytest_asyncio.fixture(params=RIGS)
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    """A database with its tables, empty, and one kind of session."""
    name: str = request.param
    url: str = request.getfixturevalue("empty_postgres" if name.startswith("postgresql") else "sqlite_url")
    async with rig_at(url, plain=name.endswith("plain")) as rig:
        yield rig


@pytest_asyncio.fixture
async def stage(rig: Rig) -> AsyncIterator[Stage]:
    """The participant on it, served."""
    async with staged(rig) as stage:
        yield stage
