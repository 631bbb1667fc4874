"""How many transactions a saga costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest_asyncio

from amends_coordinator.core.saga import Saga
from amends_coordinator.core.states import SagaState
from amends_coordinator.ledger.sql import SqlLedger
from amends_coordinator.ports.ledger import Write
from tests.conformance.ledger.sagas import advanced, after, new, saga, succeeded, write
from tests.unit.ledger.databases import make_file, open_file


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
