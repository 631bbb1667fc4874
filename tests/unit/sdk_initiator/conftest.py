"""A coordinator of a few lines, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from amends import SagaClient
from tests.unit.sdk_initiator.coordinator import TellingCoordinator, serving


@pytest.fixture
async def coordinator() -> TellingCoordinator:
    """A coordinator that isn't served yet."""
    # The methods that it leaves out answer UNIMPLEMENTED, as generated; only the stub calls them abstract.
    return TellingCoordinator()  # type: ignore[abstract]  # pyright: ignore[reportAbstractUsage]


@pytest.fixture
async def client(coordinator: TellingCoordinator) -> AsyncIterator[SagaClient]:
    """A client of that coordinator, which is served now."""
    async with serving(coordinator) as address, SagaClient(address) as client:
        yield client
