"""What holds for every scenario: whatever happens, nobody's log has a traceback."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture(autouse=True)
def no_traceback(capsys: pytest.CaptureFixture[str]) -> Generator[None]:
    """A coordinator inside the test's process logs to what pytest captures; it is shown again if the test fails."""
    yield
    out, err = capsys.readouterr()
    sys.stdout.write(out)
    sys.stderr.write(err)
    assert "Traceback" not in out + err
