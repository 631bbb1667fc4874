"""A database that fails: answers that get lost, commits that fail, other writers, data it refuses."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from amends_coordinator.core.ids import NodeId, SagaId, StepName
from amends_coordinator.core.states import SagaState
from amends_coordinator.ledger.sql import SqlLedger
from amends_coordinator.ports.ledger import (
    LedgerUnavailableError,
    Started,
    SupersededError,
    UnreadableSagaError,
    Write,
    WriteRefusedError,
)
from tests.conformance.ledger.sagas import DEFINITION, NODE, advanced, after, new, plan_of, saga, stored, write
from tests.unit.ledger.databases import Fault, dialect, faulty, make_file, open_file, query
from tests.waiting import eventually


async def opened_with(fault: Fault, folder: Path, *, patience_s: float = 10.0) -> SqlLedger:
    """A ledger whose commits fail as `fault` says."""
    return await open_file(make_file(folder), patience_s=patience_s, factory=faulty(fault))


def start(script: str) -> subprocess.Popen[bytes]:
    """A Python process that runs the script."""
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)


@pytest.mark.timeline
async def test_v16_a_lost_commit_answer(tmp_path: Path) -> None:
    """V16: decisions and starts whose commit answer was lost are sent again and applied exactly once."""
    fault = Fault()
    ledger = await opened_with(fault, tmp_path)
    values = [saga(f"order-{number}") for number in range(10)]
    fault.after = 1
    started = await asyncio.gather(*(ledger.start(new(value)) for value in values))
    assert started == [Started(started=True, stored=stored(value, 1)) for value in values]
    assert fault.after == 0
    changed = [advanced(value, "authorize", time=after(1)) for value in values]
    fault.after = 2
    assert await asyncio.gather(*(ledger.append(write(value, 1)) for value in changed)) == [2] * 10
    assert fault.after == 0
    assert [await ledger.load(value.id) for value in changed] == [stored(value, 2) for value in changed]
    assert ledger.statistics.sent_again == 3
    await ledger.close()


@pytest.mark.timeline
async def test_v22_a_lost_commit_answer_and_an_operators_write_in_between(tmp_path: Path) -> None:
    """V22: a decision that is stored is recognised, although a non-owner has written the saga since."""
    path = make_file(tmp_path)

    class Interrupted(sqlite3.Connection):
        armed = False

        def commit(self) -> None:
            super().commit()
            if Interrupted.armed:
                Interrupted.armed = False
                with closing(sqlite3.connect(path, timeout=10)) as outside, outside:
                    outside.execute("UPDATE saga SET version = version + 1, abort_requested = 1")
                raise sqlite3.OperationalError("planted: committed, but the answer is lost")

    ledger = await open_file(path, factory=Interrupted)
    value = saga("order-1")
    await ledger.start(new(value))
    changed = advanced(value, "authorize", time=after(1))
    Interrupted.armed = True
    assert await ledger.append(write(changed, 1)) == 2
    assert await ledger.load(value.id) == stored(replace(changed, abort_requested=True), 3)
    with pytest.raises(SupersededError):
        await ledger.append(write(advanced(changed, "ship", time=after(2)), 2))
    await ledger.close()


async def test_a_commit_that_fails_is_made_again(tmp_path: Path) -> None:
    """A transaction that was not committed is sent again; the caller notices nothing."""
    fault = Fault()
    ledger = await opened_with(fault, tmp_path)
    fault.before = 3
    value = saga("order-1")
    assert (await ledger.start(new(value))).started
    fault.before = 1
    claimed = await ledger.claim(now=after(1), limit=5, held=frozenset())
    assert claimed == [stored(value, 1)]
    await ledger.close()


async def test_an_answer_that_stays_lost_is_recognised_when_the_caller_repeats(tmp_path: Path) -> None:
    """V16: after LedgerUnavailableError the same write, sent again, is applied once, whether it was stored or not."""
    fault = Fault()
    ledger = await opened_with(fault, tmp_path, patience_s=0.2)
    value = saga("order-1")
    await ledger.start(new(value))
    decision = write(advanced(value, "authorize", time=after(1)), 1)
    fault.after, fault.then_before = 1, 10**6
    with pytest.raises(LedgerUnavailableError):
        await ledger.append(decision)
    fault.before = 0
    assert await ledger.append(decision) == 2
    assert await ledger.load(value.id) == stored(decision.saga, 2)
    await ledger.close()


async def test_callers_are_told_in_time_and_later_ones_are_served(tmp_path: Path) -> None:
    """A database that others keep locked: LedgerUnavailableError in bounded time, and it recovers."""
    path = make_file(tmp_path)
    ledger = await open_file(path, patience_s=0.3)
    with closing(sqlite3.connect(path)) as outside:
        outside.execute("BEGIN IMMEDIATE")
        begun = time.monotonic()
        results = await asyncio.gather(
            *(ledger.start(new(saga(f"order-{number}"))) for number in range(5)),
            ledger.heartbeat(after(1)),
            return_exceptions=True,
        )
        assert time.monotonic() - begun < 5
        assert [type(result) for result in results] == [LedgerUnavailableError] * 6
        for result in results:
            assert "another process keeps writing" in str(result)
            assert "locked" not in str(result)
        outside.rollback()
    assert (await ledger.start(new(saga("order-1")))).started
    await ledger.heartbeat(after(2))
    await ledger.close()


async def test_a_short_outage_is_not_noticed(tmp_path: Path) -> None:
    """Whoever waits less than the patience is served when the database is back, without asking again."""
    path = make_file(tmp_path)
    ledger = await open_file(path)
    with closing(sqlite3.connect(path)) as outside:
        outside.execute("BEGIN IMMEDIATE")
        waiting = [asyncio.ensure_future(ledger.start(new(saga(f"order-{number}")))) for number in range(5)]
        await eventually(lambda: ledger.statistics.sent_again > 0, what="a transaction that failed")
        outside.rollback()
    assert all(result.started for result in await asyncio.gather(*waiting))
    await ledger.close()


async def test_f16_an_outside_process_writes_to_the_file(tmp_path: Path) -> None:
    """F16: 50 sagas at once beside another writer: nothing fails, and "locked" reaches nobody."""
    path = make_file(tmp_path)
    ledger = await open_file(path)
    script = (
        "import sqlite3, sys, time\n"
        f"c = sqlite3.connect({str(path)!r}, timeout=30, isolation_level=None)\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    c.execute('BEGIN IMMEDIATE'); c.execute('UPDATE node SET format = format'); time.sleep(0.02)\n"
        "    c.execute('COMMIT'); time.sleep(0.03)\n"
    )
    outside = start(script)
    try:
        assert outside.stdout is not None
        assert await asyncio.to_thread(outside.stdout.readline) == b"ready\n"

        async def run(number: int) -> int:
            value = saga(f"order-{number}")
            await ledger.start(new(value))
            version = 1
            for step in ("authorize", "ship"):
                value = advanced(value, step, time=after(version))
                version = await ledger.append(write(value, version))
            await ledger.load(value.id)
            return version

        assert await asyncio.gather(*(run(number) for number in range(50))) == [3] * 50
    finally:
        outside.kill()
        outside.communicate()
    await ledger.close()


async def test_data_that_is_refused_is_refused_alone(tmp_path: Path) -> None:
    """B3, L2: one value that no database takes fails its own decision; 63 others are applied."""
    ledger = await open_file(make_file(tmp_path))
    values = [saga(f"order-{number}") for number in range(64)]
    await asyncio.gather(*(ledger.start(new(value)) for value in values))
    decisions = [write(advanced(value, "authorize", time=after(1)), 1) for value in values]
    too_big = replace(decisions[40].intents[0], spent_us=2**80)
    decisions[40] = replace(decisions[40], intents=(too_big,))
    not_a_year = replace(decisions[50].saga, updated_time=after(10**18))
    decisions[50] = replace(decisions[50], saga=not_a_year)
    foreign = replace(decisions[60].intents[0], step=cast("StepName", None))
    decisions[60] = Write(saga=replace(decisions[60].saga, intents=(foreign,)), seen_version=1, intents=(foreign,))
    results = await asyncio.gather(*(ledger.append(decision) for decision in decisions), return_exceptions=True)
    for number in (60, 50, 40):
        refused = results.pop(number)
        assert isinstance(refused, WriteRefusedError)
        assert f"order-{number}" in str(refused)
        assert "input" not in str(refused)
    assert results == [2] * 61
    assert await ledger.load(SagaId("order-40")) == stored(values[40], 1)
    await ledger.close()


async def test_a_registration_with_bad_data_is_refused(tmp_path: Path) -> None:
    """A task of its own that the database refuses is told so and spoils nothing."""
    ledger = await open_file(make_file(tmp_path))
    with pytest.raises(WriteRefusedError):
        await ledger.put_definition(replace(DEFINITION, name="other", created_time=after(10**18)))
    assert await ledger.get_definition("other", None) is None
    await ledger.close()


async def test_a_full_disk(tmp_path: Path) -> None:
    """S1: where nothing can be stored nothing is answered as stored; with space again it goes on by itself."""

    class Bounded(sqlite3.Connection):
        pages = 10_000

        def __init__(self, *arguments: Any, **options: Any) -> None:  # Any: whatever sqlite3.connect was given
            super().__init__(*arguments, **options)
            self.execute(f"PRAGMA max_page_count = {Bounded.pages}")

    path = make_file(tmp_path)
    ledger = await open_file(path, patience_s=0.2, factory=Bounded)
    value = saga("order-1")
    await ledger.start(new(value))
    Bounded.pages = 1
    big = replace(advanced(value, "authorize", time=after(1)), output=b"x" * 1_000_000)
    await ledger.abandon()
    ledger = await open_file(path, patience_s=0.2, factory=Bounded)
    (found,) = await ledger.claim(now=after(1), limit=1, held=frozenset())
    with pytest.raises(LedgerUnavailableError, match="the disk is full"):
        await ledger.append(write(big, found.version))
    assert await ledger.load(value.id) == found
    Bounded.pages = 10_000
    assert await ledger.append(write(big, found.version)) == found.version + 1
    await ledger.close()


async def test_closing_without_a_database_frees_the_ledger(tmp_path: Path) -> None:
    """Whoever stops while the database is away says so, and the next process is not locked out."""
    path = make_file(tmp_path)
    ledger = await open_file(path, patience_s=0.2)
    await ledger.start(new(saga("order-1")))
    with closing(sqlite3.connect(path)) as outside:
        outside.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerUnavailableError):
            await ledger.close()
        outside.rollback()
    again = await open_file(path)
    await again.close()


async def test_a_saga_of_a_newer_release(tmp_path: Path) -> None:
    """A format that this release doesn't know is neither claimed nor guessed at."""
    path = make_file(tmp_path)
    ledger = await open_file(path)
    await ledger.start(new(saga("order-1"), owner=None))
    with closing(sqlite3.connect(path, timeout=10)) as outside, outside:
        outside.execute("UPDATE saga SET format = 99")
    assert await ledger.claim(now=after(1), limit=5, held=frozenset()) == []
    with pytest.raises(UnreadableSagaError, match="format 99"):
        await ledger.load(SagaId("order-1"))
    await ledger.close()


async def test_a_caller_that_leaves_changes_nothing(tmp_path: Path) -> None:
    """A cancelled caller's decision is made all the same, and nobody else is disturbed."""
    ledger = await open_file(make_file(tmp_path))
    leaving = asyncio.ensure_future(ledger.start(new(saga("order-1"))))
    await asyncio.sleep(0)
    leaving.cancel()
    assert (await ledger.start(new(saga("order-2")))).started
    assert await ledger.count_by_state() == {SagaState.RUNNING: 2}
    await ledger.close()


async def test_a_lost_answer_while_the_ledger_is_taken(tmp_path: Path) -> None:
    """Taking the ledger is safe to repeat: one row of the node, everything released once."""
    path = make_file(tmp_path)
    ledger = await open_file(path)
    await ledger.start(new(saga("order-1")))
    await ledger.abandon()
    fault = Fault()
    fault.after = 1
    again = SqlLedger(dialect(path, factory=faulty(fault)))
    await again.open(NodeId("node-2"), plans=plan_of)
    assert query(path, "SELECT node_id, fenced FROM node ORDER BY node_id") == [(NODE, 1), ("node-2", 0)]
    assert query(path, "SELECT owner, version FROM saga") == [(None, 2)]
    await again.close()
