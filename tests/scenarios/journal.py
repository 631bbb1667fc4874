"""The journal of a scripted participant: what was called, what took effect, and when. It survives the process."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line. `event` is "begin", "effect" or "end" of a call; `deadline_left_s` is set at its beginning."""

    event: str
    time_s: float
    name: str
    key: str
    saga_id: str
    step: str
    direction: str
    attempt: int
    deadline_left_s: float | None = None
    effect_id: str = ""
    outcome: str = ""


class Journal:
    """An append-only file of entries, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, entry: Entry) -> None:
        """Append an entry; it is with the operating system when this returns, so a killed process loses nothing."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(entry)) + "\n")

    def read(self) -> list[Entry]:
        """All entries, in the order in which they were written."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return [Entry(**json.loads(line)) for line in lines]

    def begun(self, name: str, direction: str = "action") -> list[Entry]:
        """The calls of one step and direction that began."""
        return [e for e in self.read() if (e.event, e.name, e.direction) == ("begin", name, direction)]

    def ended(self, name: str, direction: str = "action") -> bool:
        """Whether a call of one step and direction has ended, however."""
        return any((e.event, e.name, e.direction) == ("end", name, direction) for e in self.read())

    def effects(self, direction: str = "action") -> list[Entry]:
        """The effects of one direction, in the order in which they happened."""
        return [e for e in self.read() if (e.event, e.direction) == ("effect", direction)]


def now_s() -> float:
    """The machine's clock: entries of several processes are compared."""
    return time.time()
