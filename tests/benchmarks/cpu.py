"""How much processor time processes and their threads have used, read from the operating system (Linux)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor seconds of a process: its main thread, which runs the event loop, and all its other threads."""

    loop_s: float
    other_threads_s: float

    def minus(self, earlier: Usage) -> Usage:
        """What was used since `earlier`."""
        return Usage(self.loop_s - earlier.loop_s, self.other_threads_s - earlier.other_threads_s)


def usage(pid: int) -> Usage:
    """What a process has used so far. Threads that have ended count with the others."""
    whole_s = _seconds(Path(f"/proc/{pid}/stat"))
    loop_s = _seconds(Path(f"/proc/{pid}/task/{pid}/stat"))
    return Usage(loop_s, whole_s - loop_s)


def _seconds(stat: Path) -> float:
    """User and system time: the fields 14 and 15, counted behind the name in parentheses."""
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S
