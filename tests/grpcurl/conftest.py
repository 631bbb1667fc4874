"""A real grpcurl for every test that asks for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.grpcurl.tool import find_grpcurl

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def grpcurl(request: pytest.FixtureRequest) -> Path:
    """The program; built only if the run asked for these tests by their mark."""
    return find_grpcurl(asked_for="grpcurl" in str(request.config.getoption("markexpr")))
