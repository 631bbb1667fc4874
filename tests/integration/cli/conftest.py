"""What the tests of the command line share: a coordinator's API for them to talk to, and a way to run commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from tests.integration.cli.api import SagaApi


@pytest.fixture
def api() -> Iterator[SagaApi]:
    """A saga service on a free loopback port."""
    with SagaApi() as served:
        yield served


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """Runs a command in this process, with no settings of the machine's own."""
    monkeypatch.delenv("AMENDS_COORDINATOR", raising=False)
    return CliRunner()
