"""The participant in Go: built where Go is there, and run as a process."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.conftest import CHECKOUT

if TYPE_CHECKING:
    from pathlib import Path

SOURCES = CHECKOUT / "participants" / "go"
CACHE = CHECKOUT / ".go"
NOT_TESTED = "the participant in Go (docs/barrier.md kept by hand) was not tested"

QUICKLY = ("-tags=grpcnotrace", "-gcflags=all=-N -l", "-ldflags=-s -w")
"""Without optimisation, symbols and gRPC's own pages of traces: with empty caches that saves a third of the work."""

MODULES_BOUND_S = 120.0
BUILD_BOUND_S = 400.0
START_BOUND_S = 30.0


def built() -> Path:
    """The program, built from what stands here now; skips the test where it can't be.

    What Go makes or fetches stays inside this checkout, unless GOCACHE and GOMODCACHE say where it is; and two test
    runs don't build at once.
    """
    if shutil.which("go") is None:
        pytest.skip(f"{NOT_TESTED}: there is no Go here")
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _must_do(["go", "mod", "download"], MODULES_BOUND_S, otherwise="its modules could not be had")
        program = CACHE / "points"
        building = _go(["go", "build", *QUICKLY, "-o", str(program), "."], BUILD_BOUND_S)
        if building is None:
            pytest.skip(f"{NOT_TESTED}: it was not built within {BUILD_BOUND_S:.0f} s")
        assert building.returncode == 0, building.stderr
    return program


def _must_do(command: list[str], bound_s: float, *, otherwise: str) -> None:
    done = _go(command, bound_s)
    if done is None or done.returncode:
        said = f"no answer within {bound_s:.0f} s" if done is None else done.stderr.strip().splitlines()[-1]
        pytest.skip(f"{NOT_TESTED}: {otherwise} ({said})")


def _go(command: list[str], bound_s: float) -> subprocess.CompletedProcess[str] | None:
    """Run Go without C and without fetching another Go; None if it took too long."""
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-modcacherw -buildvcs=false",
        "GOCACHE": os.environ.get("GOCACHE", str(CACHE / "cache")),
        "GOMODCACHE": os.environ.get("GOMODCACHE", str(CACHE / "modules")),
    }
    try:
        return subprocess.run(
            command, cwd=SOURCES, env=environment, timeout=bound_s, check=False, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        return None


class PointsProcess:
    """The program as a process, which says where it listens.

    Args:
        program: what `built` answers.
        database: URL of its database.
        coordinator: where it announces itself.
        log: where its standard error goes; appended to.
    """

    def __init__(self, program: Path, *, database: str, coordinator: str, log: Path) -> None:
        self._command = [str(program), "-database", database, "-coordinator", coordinator]
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self.address = ""

    async def start(self) -> None:
        """Start it and wait until it listens."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdout=asyncio.subprocess.PIPE, stderr=log, env=dict(os.environ)
            )
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), START_BOUND_S)
        assert line.startswith(b"listening on "), self._log.read_text()
        self.address = line.decode().split()[-1]

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal and wait for its end; answers its exit code. It may have ended before."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        return await asyncio.wait_for(process.wait(), START_BOUND_S)
