"""A disk that is full: SQLite itself says so, once its file may not grow any more."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from amends_coordinator.core.ids import SagaId
from amends_coordinator.core.states import SagaState
from amends_coordinator.ledger.sql import SqlLedger
from amends_coordinator.ports.ledger import LedgerUnavailableError
from scenario.v1.scenario_pb2 import DoResponse
from tests.unit.engine.rig import rig, succeed
from tests.unit.ledger.databases import dialect, make_file

if TYPE_CHECKING:
    from pathlib import Path

    from amends_coordinator.core.answer import Answer
    from amends_coordinator.ports.participants import CallRequest

LARGE = b"\x1a\xc0\xb8\x02" + b"x" * 40_000
"""An input that doesn't fit into the rest of the file's last page."""


class Disk(sqlite3.Connection):
    """A connection to a file that may not have more pages than the disk has room for."""

    pages = 1_000_000
    bound = 0

    def cursor(self, *arguments: Any, **options: Any) -> Any:  # Any: whatever sqlite3 takes and gives
        """A cursor, as SQLAlchemy asks for one."""
        self._hold_bound()
        return super().cursor(*arguments, **options)

    def execute(self, *arguments: Any) -> Any:
        """A statement past SQLAlchemy's layers, as the writer's are."""
        self._hold_bound()
        return super().execute(*arguments)

    def _hold_bound(self) -> None:
        """Give the file the bound that holds now; one below its size stands for its size."""
        if self.bound != Disk.pages:
            self.bound = Disk.pages
            super().execute(f"PRAGMA max_page_count = {Disk.pages}")


async def test_no_intent_so_no_call(tmp_path: Path) -> None:
    """S1, S11, S12: on a full disk nothing is started and nothing is called; running sagas hold still, are not rolled
    back, and go on by themselves when there is room again.
    """
    answered, full = asyncio.Event(), asyncio.Event()

    async def answer(request: CallRequest) -> Answer:
        if request.step == "a" and request.saga_id == "s":
            answered.set()
            await full.wait()
            return replace(await succeed(request), response=DoResponse(effect_id="x" * 40_000).SerializeToString())
        return await succeed(request)

    ledger = SqlLedger(dialect(make_file(tmp_path), factory=Disk), patience_s=0.1)
    async with rig(ledger, answer=answer) as stage:
        await stage.start("s")
        await answered.wait()
        Disk.pages = 1
        full.set()
        with pytest.raises(LedgerUnavailableError, match="the disk is full"):
            await stage.start("new", payload=LARGE)
        assert stage.participants.sides("s") == ["a/action#1"]
        assert stage.participants.sides("new") == []
        Disk.pages = 1_000_000
        assert (await stage.end("s")).saga.state is SagaState.COMMITTED
        assert stage.participants.sides("s") == ["a/action#1", "b/action#1"]
        assert await ledger.load(SagaId("new")) is None
