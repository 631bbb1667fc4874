"""Starts, watches and ends the demo's processes; each writes what it says to a file of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shop.demo.errors import DemoFailedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

STOP_TIMEOUT_S = 10.0
LOG_LINES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Child:
    """A process that the demo started."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Raises `DemoFailedError` with the end of its log if the process is gone."""
        code = self.process.poll()
        if code is not None:
            raise DemoFailedError(f"{self.name} ended by itself with code {code}; it said last:\n{self.last_words()}")

    def output(self) -> str:
        """Everything it has said so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def last_words(self) -> str:
        """The last lines that it said."""
        return "\n".join(self.output().splitlines()[-LOG_LINES_SHOWN:])

    def kill(self) -> None:
        """Ends it with SIGKILL: it gets no chance to finish anything."""
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)


def start_child(name: str, module: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> Child:
    """Starts `python -m MODULE...` with this very Python.

    The process gets a session of its own, so that Ctrl-C reaches the demo alone, which then ends the others in order.
    """
    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", *module],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )
    return Child(name, process, log)


def stop_children(children: Iterable[Child]) -> tuple[str, ...]:
    """Ends every process that still runs, politely first; names those that did not end cleanly.

    It blocks, and on purpose: nothing may interrupt the tidying up.
    """
    running = [child for child in children if child.process.poll() is None]
    for child in running:
        child.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    return tuple(child.name for child in running if not _ended_cleanly(child, deadline))


def _ended_cleanly(child: Child, deadline: float) -> bool:
    try:
        return child.process.wait(max(0.0, deadline - time.monotonic())) == 0
    except subprocess.TimeoutExpired:
        child.kill()
        return False
