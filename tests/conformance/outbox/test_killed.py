"""A relay's process that is killed between the broker's yes and the outbox's knowledge of it."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from amends.outbox import Relay
from tests.conformance.outbox.process import OPTIONS, Journal
from tests.conformance.outbox.rigs import Rig
from tests.waiting import eventually

KEYS = ("a", "b", "c")


async def killed(url: str, journal: Path, limit: int) -> None:
    """Run the process until it has killed itself."""
    arguments = ("-m", "tests.conformance.outbox.process", url, str(journal), str(limit))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments)
    async with asyncio.timeout(30):
        assert await process.wait() == -signal.SIGKILL


@pytest.mark.crash
@pytest.mark.parametrize("rig", ["sqlite-async", "postgresql-sync"], indirect=True)
async def test_killed_between_publishing_and_forgetting(rig: Rig, tmp_path: Path) -> None:
    """O2, O3: what it may have delivered is delivered again, with the same id; for the first time all come in order."""
    journal = tmp_path / "journal"
    for turn in range(4):
        for key in KEYS:
            await rig.publish(key, f"{key}{turn}", f"{key}{turn}+")
    await killed(rig.url, journal, 5)
    before = journal.read_text().splitlines()
    async with Relay(rig.sessions, Journal(journal, 0), OPTIONS):
        await eventually(lambda: rig.written() == [], what="the next relay delivers the rest")
    after = [line.split() for line in journal.read_text().splitlines()]
    assert before[-1].split() in after[5:], "the last event before the death was not delivered again"
    first_times: dict[str, tuple[str, str]] = {}
    for event_id, key, text in after:
        assert first_times.setdefault(event_id, (key, text)) == (key, text)
    assert len(first_times) == 24
    for key in KEYS:
        arrived = [text for of, text in first_times.values() if of == key]
        assert arrived == [f"{key}{turn}{half}" for turn in range(4) for half in ("", "+")]
