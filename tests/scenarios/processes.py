"""Starts the coordinator and participants as real processes, kills them for real, and starts them again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

START_BOUND_S = 60.0
STOP_BOUND_S = 30.0


class Process:
    """One program that says `listening on 127.0.0.1:PORT` when it is ready; its log goes to a file.

    Args:
        arguments: the module to run and its arguments.
        environment: settings beside the test's own environment.
        log: where its standard error goes; appended to.
    """

    def __init__(self, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        self._arguments = arguments
        self._environment = environment
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self.port = 0

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Its process id."""
        if self._process is None:
            raise AssertionError("it was never started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._process is not None and self._process.returncode is None

    def set(self, **settings: str) -> None:
        """Change settings for its next start."""
        self._environment = {**self._environment, **settings}

    async def start(self) -> None:
        """Start it and wait until it listens; again on the port that it had before."""
        arguments = [argument.replace("{port}", str(self.port)) for argument in self._arguments]
        settings = {key: value.replace("{port}", str(self.port)) for key, value in self._environment.items()}
        environment = {**os.environ, **settings}
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", *arguments, env=environment, stdout=asyncio.subprocess.PIPE, stderr=log
            )
        self.port = await asyncio.wait_for(self._listening(self._process), START_BOUND_S)

    async def kill(self) -> None:
        """End it with SIGKILL: nothing of it gets a word in."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """End it with SIGTERM, as an operator does; answers its exit code."""
        return await self._end(signal.SIGTERM)

    async def interrupt(self) -> int:
        """End it with SIGINT, as Ctrl-C does; answers its exit code."""
        return await self._end(signal.SIGINT)

    async def ended(self) -> int:
        """Wait until it has ended by itself; answers its exit code."""
        if self._process is None:
            raise AssertionError("it was never started")
        return await asyncio.wait_for(self._process.wait(), STOP_BOUND_S)

    def log_text(self) -> str:
        """What it has written to standard error so far."""
        return self._log.read_text() if self._log.exists() else ""

    async def _end(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
        if self._process.returncode is None:
            self._process.send_signal(number)
        return await asyncio.wait_for(self._process.wait(), STOP_BOUND_S)

    async def _listening(self, process: asyncio.subprocess.Process) -> int:
        if process.stdout is None:
            raise AssertionError("its standard output isn't read")
        while line := (await process.stdout.readline()).decode():
            if line.startswith("listening on "):
                return int(line.rsplit(":", 1)[1])
        raise AssertionError(f"{self._arguments[0]} ended before it listened:\n{self.log_text()}")


def coordinator(data: Path, **settings: str) -> Process:
    """A coordinator on a SQLite ledger in `data`, with a short lease of participants and quick sweeps."""
    environment = {
        "AMENDS_LEDGER_URL": f"sqlite:///{data / 'ledger.db'}",
        "AMENDS_HOST": "127.0.0.1",
        "AMENDS_PORT": "{port}",
        "AMENDS_SWEEP_INTERVAL_S": "0.2",
        "AMENDS_STOP_GRACE_S": "1",
        **settings,
    }
    return Process(["amends_coordinator"], environment, data / "coordinator.log")


def participant(data: Path, coordinator_address: str) -> Process:
    """The scripted participant, with its journal and script in `data`."""
    arguments = ["tests.scenarios.participant", "--coordinator", coordinator_address, "--port", "{port}"]
    return Process([*arguments, "--data", str(data)], {}, data / "participant.log")
