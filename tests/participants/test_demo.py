"""The demo as a process: it ends with its one line, and whoever stops it early finds nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from shop.demo.stage import CHECKOUT
from tests.waiting import eventually_blocking

DEMO_TIMEOUT_S = 110
PROCESSES = Path("/proc")
LAST_LINE = "demo: sagas=4 committed=3 compensated=1 inconsistent=0"


def children_of(process_id: int) -> set[int]:
    """The processes that a process has started and that are not gone, as Linux lists them."""
    return {
        int(folder.name) for folder in PROCESSES.iterdir() if folder.name.isdigit() and _parent(folder) == process_id
    }


def _parent(folder: Path) -> int | None:
    try:
        status = (folder / "stat").read_text()
    except OSError:
        return None
    # The second field is the command's name in brackets, which may hold anything; then the state, then the parent.
    return int(status.rpartition(")")[2].split()[1])


def is_gone(process_id: int) -> bool:
    """Whether no such process runs any more."""
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return True
    return False


@contextmanager
def demo(log: Path, **settings: str) -> Generator[subprocess.Popen[bytes]]:
    """A running demo; if it outlives the test it is stopped the polite way, so that it stops its own processes."""
    command, environment = [sys.executable, "-m", "shop.demo"], {**os.environ, **settings}
    with log.open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said, env=environment) as run:
        try:
            yield run
        finally:
            if run.poll() is None:
                run.terminate()


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.skipif(os.environ.get("KEEP") == "1", reason="the folder is kept on demand")
def test_the_demo_ends_consistent(tmp_path: Path) -> None:
    """S1 to S5, L1: four orders, a late answer and a crash, and the books agree with what the sagas claim."""
    log = tmp_path / "demo.log"
    with demo(log) as run:
        assert run.wait(DEMO_TIMEOUT_S) == 0, log.read_text()
    assert log.read_text().splitlines()[-1] == LAST_LINE


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.skipif(os.environ.get("KEEP") == "1", reason="the folder is kept on demand")
def test_the_demo_on_postgresql(tmp_path: Path, postgres_database: str) -> None:
    """S1 to S5, L1: the same with the ledger in a database that `LEDGER_URL` names; what is printed has no password."""
    log = tmp_path / "demo.log"
    with demo(log, LEDGER_URL=postgres_database.replace("postgres@", "postgres:s3cret@")) as run:
        assert run.wait(DEMO_TIMEOUT_S) == 0, log.read_text()
    assert log.read_text().splitlines()[-1] == LAST_LINE
    assert "s3cret" not in log.read_text()
    with psycopg.connect(postgres_database) as connection:
        ended = connection.execute("SELECT state, count(*) FROM saga GROUP BY state ORDER BY state").fetchall()
    assert ended == [("COMMITTED", 3), ("COMPENSATED", 1)]


@pytest.mark.slow
@pytest.mark.skipif(not PROCESSES.is_dir(), reason="looks for processes where Linux lists them")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_stopped_early_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    """Every process that it started is gone, and so is its folder."""
    log = tmp_path / "demo.log"
    with demo(log) as run:
        eventually_blocking(lambda: "order-2:" in log.read_text(), what="the demo plays", bound_s=60)
        started = children_of(run.pid)
        folder = CHECKOUT / log.read_text().partition("data in ")[2].split()[0]
        assert len(started) == 7
        assert folder.is_dir()
        run.send_signal(number)
        assert run.wait(DEMO_TIMEOUT_S) == 130
    assert all(map(is_gone, started))
    assert not folder.exists()
    assert log.read_text().splitlines()[-1] == "demo: stopped before its end; every process was ended"
