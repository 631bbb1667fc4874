"""F16: fifty sagas at once, and somebody outside who writes to the ledger all the time, on both databases."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from amends import Committed
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.inside import inside
from tests.scenarios.outside import Writes, writing_steadily
from tests.scenarios.raw import Reply, raw_steps
from tests.scenarios.sagas import steps

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager
    from pathlib import Path

pytestmark = pytest.mark.scenario

COUNT = 50
EVERY_S = 0.05
BOUND = timedelta(seconds=60)


@dataclass(slots=True)
class Meddler:
    """An outsider on PostgreSQL: takes the rows of some running sagas, keeps them for a moment, and writes to them."""

    url: str
    writes: Writes = field(default_factory=Writes)

    def run(self) -> None:
        """Go on until stopped."""
        with psycopg.connect(self.url) as connection:
            while not self.writes.stopped.wait(EVERY_S):
                connection.execute(
                    "UPDATE saga SET unproven = unproven WHERE id IN "
                    "(SELECT id FROM saga WHERE state = 'RUNNING' ORDER BY random() LIMIT 10 FOR UPDATE SKIP LOCKED)"
                )
                self.writes.stopped.wait(EVERY_S / 5)
                connection.commit()
                self.writes.count += 1


@contextmanager
def meddling(url: str) -> Generator[Writes]:
    """Somebody writes to the rows of sagas all the time."""
    meddler = Meddler(url)
    thread = threading.Thread(target=meddler.run)
    thread.start()
    try:
        yield meddler.writes
    finally:
        meddler.writes.stopped.set()
        thread.join()


def writing(ledger_url: str, data: Path) -> AbstractContextManager[Writes]:
    """Somebody who writes to this ledger from outside, as its kind of database lets him."""
    if ledger_url.startswith("sqlite"):
        return writing_steadily(data / "ledger.db", every_s=EVERY_S)
    return meddling(ledger_url)


async def test_f16_nothing_fails_or_stalls(tmp_path: Path, ledger_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """F16, L1, L2: all sagas commit meanwhile, each call is made once, and no "locked" reaches a client or a log."""
    plan = {"b": [Reply(delay_s=0.3)]}
    async with raw_steps(plan) as participant, inside(tmp_path, ledger_url=ledger_url) as coordinator:
        await coordinator.announce("raw", participant.address)
        with writing(ledger_url, tmp_path) as writes:
            saga = steps("a", "b", "c", attempt_timeout=BOUND)
            starts = (coordinator.client.start(saga, ScenarioInput(), saga_id=f"s-{n}") for n in range(COUNT))
            handles = await asyncio.gather(*starts)
            ends = await asyncio.gather(*(handle.wait(BOUND) for handle in handles))
        assert writes.count > 3
    assert {type(end) for end in ends} == {Committed}
    assert len(participant.seen) == 3 * COUNT
    said = "".join(capsys.readouterr())
    assert "locked" not in said
    assert "Traceback" not in said
