"""What holds for every scenario: whatever happens, nobody's log has a traceback. Some are played on both databases."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.conformance.barrier.conftest import barred_postgres, empty_postgres, rig, sqlite_url
from tests.timelines.databases import ledger_url

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["barred_postgres", "empty_postgres", "ledger_url", "no_traceback", "rig", "sqlite_url"]


@pytest.fixture(autouse=True)
def no_traceback(capsys: pytest.CaptureFixture[str]) -> Generator[None]:
    """A coordinator inside the test's process logs to what pytest captures; it is shown again if the test fails."""
    yield
    out, err = capsys.readouterr()
    sys.stdout.write(out)
    sys.stderr.write(err)
    assert "Traceback" not in out + err
