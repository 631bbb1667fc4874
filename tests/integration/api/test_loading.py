"""Ctrl-C while a process is still loading its modules."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import eventually_blocking

MODULE = ["-m", "amends_coordinator"]
COMMAND_LINE = ["-c", "from amends.cli import main; main()", "serve"]


@pytest.mark.parametrize(
    ("command", "library"), [(MODULE, "cygrpc"), (COMMAND_LINE, "sqlalchemy")], ids=["module", "command line"]
)
def test_ctrl_c_while_loading_ends_without_a_traceback(command: list[str], library: str, tmp_path: Path) -> None:
    """Ctrl-C ends every process cleanly, also before it listens; `library` is loaded in the middle of that."""
    with subprocess.Popen(
        [sys.executable, *command],
        cwd=tmp_path,
        env={**os.environ, "AMENDS_PORT": "0"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            maps = Path(f"/proc/{process.pid}/maps")
            eventually_blocking(lambda: library in maps.read_text(), what=f"the process loads {library}", bound_s=30)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode in (0, -signal.SIGINT, 130)
    assert "Traceback" not in out + err
