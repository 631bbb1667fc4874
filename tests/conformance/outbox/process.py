"""A process that relays and dies: `python -m tests.conformance.outbox.process URL JOURNAL LIMIT`.

It appends what it publishes to the journal, and is killed by itself right after it has published LIMIT events: the
broker has the last one, the outbox doesn't know it yet.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker

from amends.outbox import Event, Relay, RelayOptions
from tests.conformance.outbox.rigs import heard

OPTIONS = RelayOptions(lease=timedelta(milliseconds=200), publish_timeout=timedelta(milliseconds=150))


class Journal:
    """A publisher whose broker is a file."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path, self._limit = path, limit
        self._count = 0

    async def publish(self, event: Event) -> None:
        """See `Publisher`."""
        with self._path.open("a") as journal:
            journal.write(f"{event.event_id} {event.key} {heard(event.payload)}\n")
        self._count += 1
        if self._count == self._limit:
            os.kill(os.getpid(), signal.SIGKILL)


async def main(url: str, journal: str, limit: str) -> None:
    """Relay until death."""
    await Relay(sessionmaker(create_engine(url)), Journal(Path(journal), int(limit)), OPTIONS).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
