"""Every test of this folder runs once per adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from amends_coordinator.ports.ledger import Ledger
from tests.conformance.ledger.rigs import RIGS, Rig, opened


@pytest.fixture(params=list(RIGS))
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    """A storage that nobody has opened."""
    return RIGS[request.param](tmp_path)


@pytest_asyncio.fixture
async def ledger(rig: Rig) -> AsyncIterator[Ledger]:
    """The storage opened by `NODE`, and closed after the test."""
    ledger = await opened(rig)
    yield ledger
    await ledger.close()
