"""Every test of this folder runs once per adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from amends_coordinator.ports.ledger import Ledger
from tests.conformance.ledger.rigs import MemoryRig, PostgresRig, Rig, SqliteRig, opened

ADAPTERS = ("memory", "sqlite", "postgresql")
"""Every adapter. A new one is added here and must pass everything."""


@pytest.fixture(params=ADAPTERS)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    """A storage that nobody has opened."""
    match request.param:
        case "memory":
            return MemoryRig()
        case "sqlite":
            return SqliteRig(tmp_path)
        case _:
            return PostgresRig(request.getfixturevalue("postgres_ledger"))


@pytest_asyncio.fixture
async def ledger(rig: Rig) -> AsyncIterator[Ledger]:
    """The storage opened by `NODE`, and closed after the test."""
    ledger = await opened(rig)
    yield ledger
    await ledger.close()
