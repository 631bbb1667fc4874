"""V16: a lost commit answer alone never rolls back a healthy saga; whole sagas over real gRPC, on both databases."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy.exc import OperationalError

from amends import Committed
from amends_coordinator.ledger.postgresql import PostgresqlDialect
from amends_coordinator.ledger.sqlite import SqliteDialect
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.inside import inside
from tests.scenarios.raw import raw_steps
from tests.scenarios.sagas import steps

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection

pytestmark = [pytest.mark.scenario, pytest.mark.timeline]

COUNT = 40
BOUND = timedelta(seconds=60)


class LossyCommits:
    """Commits of which every second answer is lost after the database has done what it was asked."""

    def __init__(self, dialect: type[PostgresqlDialect | SqliteDialect]) -> None:
        self._commit = dialect.commit
        self.commits = 0
        self.lost = 0

    def commit(self, dialect: PostgresqlDialect | SqliteDialect, connection: Connection) -> None:
        """Stands in for the dialect's own."""
        self._commit(dialect, connection)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] it is its own
        self.commits += 1
        if self.commits % 2:
            self.lost += 1
            raise OperationalError("COMMIT", None, ConnectionResetError("planted: committed, but the answer is lost"))


async def test_v16_every_saga_commits(tmp_path: Path, ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """V16, S2, S12: every second answer to a commit gets lost; each saga commits, and each call is made once."""
    kind = SqliteDialect if ledger_url.startswith("sqlite") else PostgresqlDialect
    lossy = LossyCommits(kind)

    def commit(dialect: PostgresqlDialect | SqliteDialect, connection: Connection) -> None:
        lossy.commit(dialect, connection)

    async with raw_steps() as participant, inside(tmp_path, ledger_url=ledger_url) as coordinator:
        await coordinator.announce("raw", participant.address)
        monkeypatch.setattr(kind, "commit", commit)
        saga = steps("a", "b", "c", attempt_timeout=BOUND)
        starts = (coordinator.client.start(saga, ScenarioInput(), saga_id=f"s-{number}") for number in range(COUNT))
        handles = await asyncio.gather(*starts)
        ends = await asyncio.gather(*(handle.wait(BOUND) for handle in handles))
        monkeypatch.undo()
    assert {type(end) for end in ends} == {Committed}
    assert lossy.lost >= 4
    calls = Counter((seen.metadata["amends-saga-id"], seen.side) for seen in participant.seen)
    assert set(calls.values()) == {1}
    assert len(calls) == 3 * COUNT
