"""Every test of this folder that asks for a rig runs once per database and kind of session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.conformance.outbox.rigs import KINDS, Rig


def url_of(request: pytest.FixtureRequest, kind: str, folder: Path) -> str:
    """A new database of a kind."""
    if kind.startswith("sqlite"):
        return f"sqlite:///{folder / 'participant.db'}"
    address: str = request.getfixturevalue("postgres_database")
    return address.replace("postgresql:", "postgresql+psycopg:")


@pytest_asyncio.fixture(params=KINDS)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    """A participant's database."""
    kind = str(request.param)
    rig = Rig(url_of(request, kind, tmp_path), threaded=kind.endswith("sync") and not kind.endswith("async"))
    yield rig
    await rig.close()
