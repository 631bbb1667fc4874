"""How many transactions a saga costs."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest_asyncio

from amends_coordinator.core.saga import Saga
from amends_coordinator.core.states import SagaState
from amends_coordinator.ledger.sql import SqlLedger
from amends_coordinator.ports.ledger import Write
from tests.conformance.ledger.sagas import advanced, after, new, saga, succeeded, write
from tests.unit.ledger.databases import make_file, open_file, query


@pytest_asyncio.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[SqlLedger]:
    """An open ledger in a file."""
    ledger = await open_file(make_file(tmp_path))
    yield ledger
    await ledger.close()


def committed(value: Saga) -> Saga:
    """The saga after its last step succeeded."""
    last = succeeded(value.intents[-1], time=after(9))
    return replace(
        value, state=SagaState.COMMITTED, intents=(*value.intents[:-1], last), due_time=None, ended_time=after(9)
    )


async def run(ledger: SqlLedger, saga_id: str) -> None:
    """All the decisions of a saga of three steps."""
    value = saga(saga_id)
    await ledger.start(new(value))
    version = 1
    for step in ("authorize", "ship"):
        value = advanced(value, step, time=after(version))
        version = await ledger.append(write(value, version))
    value = committed(value)
    await ledger.append(Write(saga=value, seen_version=version, intents=value.intents[-1:]))


async def test_a_saga_alone_costs_a_transaction_per_step_plus_one(ledger: SqlLedger) -> None:
    """The outcome of a step and the intent of the next share a transaction: three steps need four."""
    before = ledger.statistics.commits
    await run(ledger, "order-1")
    assert ledger.statistics.commits - before == 4


async def test_sagas_at_once_share_transactions(ledger: SqlLedger) -> None:
    """64 sagas at once need nowhere near 64 times the transactions of one."""
    before = ledger.statistics
    await asyncio.gather(*(run(ledger, f"order-{number}") for number in range(64)))
    done = ledger.statistics
    assert done.decisions - before.decisions == 64 * 4
    assert done.commits - before.commits <= 64
    assert done.largest_batch >= 16
    assert await ledger.count_by_state() == {SagaState.COMMITTED: 64}


async def test_a_flood_is_cut_into_batches(ledger: SqlLedger) -> None:
    """However much waits, no transaction grows without bound, and everything is answered."""
    results = await asyncio.gather(*(ledger.start(new(saga(f"order-{number}"))) for number in range(1200)))
    assert all(result.started for result in results)
    assert ledger.statistics.largest_batch <= 512


async def test_what_is_decided_while_a_transaction_begins_joins_it(tmp_path: Path) -> None:
    """L2: nothing waits for a second transaction that the first can still take along; what comes later about a saga
    that is in it does.
    """
    begun, may_go_on = threading.Event(), threading.Event()

    class Slow(sqlite3.Connection):
        is_armed = False

        def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:  # Any: as sqlite3 takes them
            cursor = super().execute(statement, *values)
            if statement == "BEGIN IMMEDIATE" and Slow.is_armed:
                Slow.is_armed = False
                begun.set()
                assert may_go_on.wait(20)
            return cursor

    path = make_file(tmp_path)
    ledger = await open_file(path, factory=Slow)
    known = saga("order-1")
    await ledger.start(new(known))
    before = ledger.statistics
    Slow.is_armed = True
    moved = advanced(known, "authorize", time=after(1))
    first = asyncio.ensure_future(ledger.append(write(moved, 1)))
    await asyncio.to_thread(begun.wait, 20)
    others = [asyncio.ensure_future(ledger.start(new(saga(f"order-{number}")))) for number in (2, 3)]
    too_late = asyncio.ensure_future(ledger.append(write(advanced(moved, "ship", time=after(2)), 2)))
    for _ in range(3):
        await asyncio.sleep(0)  # on their way to the writer
    may_go_on.set()
    assert await first == 2
    assert [(await other).started for other in others] == [True, True]
    assert await too_late == 3
    assert ledger.statistics.batches - before.batches == 2
    (last,), *joined = query(path, "SELECT written_by FROM saga ORDER BY id")
    assert joined[0] == joined[1] != (last,)
    await ledger.close()
