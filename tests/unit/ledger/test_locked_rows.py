"""Rows that somebody else keeps locked (PostgreSQL): only their saga waits, without wearing out the database."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import LiteralString

import pytest

from amends_coordinator.core.ids import NodeId, SagaId
from amends_coordinator.core.states import SagaState
from amends_coordinator.ledger.sql import SqlLedger
from amends_coordinator.ports.ledger import InstanceRow, LedgerUnavailableError, ParticipantRow
from tests.conformance.ledger.sagas import START, advanced, after, new, plan_of, saga, write
from tests.unit.ledger.servers import SHORT_LEASE_S, FaultyDialect, open_server, operator
from tests.waiting import eventually

LOCKS: dict[str, LiteralString] = {
    "the saga's row": "SELECT * FROM saga WHERE id = 'order-0' FOR UPDATE",
    "an intent's row": "UPDATE intent SET last_error = 'mine' WHERE saga_id = 'order-0'",
}


async def decide_for(ledger: SqlLedger, numbers: range) -> None:
    """Take sagas through all their decisions."""

    async def drive(number: int) -> None:
        value, version = saga(f"order-{number}"), 1
        for step in ("authorize", "ship"):
            value = advanced(value, step, time=after(version))
            version = await ledger.append(write(value, version))

    await asyncio.gather(*map(drive, numbers))


@pytest.mark.timeline
@pytest.mark.parametrize("lock", LOCKS)
async def test_b08_an_open_transaction_stops_only_its_saga(postgres_ledger: str, lock: str) -> None:
    """B8, L2: while somebody keeps a row of one saga, 63 others go on; then it does too, and nothing of it is lost."""
    ledger, _ = await open_server(postgres_ledger)
    await asyncio.gather(*(ledger.start(new(saga(f"order-{number}"))) for number in range(64)))
    first = advanced(saga("order-0"), "authorize", time=after(1))
    with operator(postgres_ledger, LOCKS[lock]):
        waiting = asyncio.ensure_future(ledger.append(write(first, 1)))
        begun = time.monotonic()
        await decide_for(ledger, range(1, 64))
        assert time.monotonic() - begun < 5
        assert not waiting.done()
    assert await waiting == 2
    found = await ledger.load(SagaId("order-0"))
    assert found is not None
    assert found.saga == first
    await ledger.close()


@pytest.mark.timeline
async def test_b08_a_locked_saga_is_not_tried_without_pause(postgres_ledger: str) -> None:
    """B8: whoever waits for a row costs a few transactions, not all that the database can make; later decisions about
    the same saga stay behind the first.
    """
    ledger, _ = await open_server(postgres_ledger)
    value = saga("order-0")
    await ledger.start(new(value))
    first = advanced(value, "authorize", time=after(1))
    second = advanced(first, "ship", time=after(2))
    with operator(postgres_ledger, LOCKS["the saga's row"]):
        before = ledger.statistics.batches
        waiting = asyncio.gather(ledger.append(write(first, 1)), ledger.append(write(second, 2)))
        await eventually(lambda: ledger.statistics.batches - before >= 6, what="the sixth try", bound_s=20)
        began = time.monotonic()
        await eventually(lambda: ledger.statistics.batches - before >= 8, what="the eighth try", bound_s=20)
        assert time.monotonic() - began > 0.3, "the pauses grow"
    assert tuple(await waiting) == (2, 3)
    await ledger.close()


async def test_whoever_waits_too_long_is_told(postgres_ledger: str) -> None:
    """S11: a decision that never gets its row is answered as not stored, with whom to blame, and may be sent again."""
    ledger, _ = await open_server(postgres_ledger, patience_s=0.3)
    value = saga("order-0")
    await ledger.start(new(value))
    decision = write(advanced(value, "authorize", time=after(1)), 1)
    for lock in LOCKS.values():
        with operator(postgres_ledger, lock):
            with pytest.raises(LedgerUnavailableError, match="order-0 can't be written: another session"):
                await ledger.append(decision)
            assert (await ledger.start(new(saga("order-1")))).stored.saga.id == "order-1"
    assert await ledger.append(decision) == 2
    await ledger.close()


async def test_many_new_intents_under_one_locked_row(postgres_ledger: str) -> None:
    """L2: a batch that is split because one of its decisions waits for a lock is applied but for that one."""
    ledger, _ = await open_server(postgres_ledger)
    values = [saga(f"order-{number}") for number in range(100)]
    await asyncio.gather(*(ledger.start(new(value)) for value in values))
    decisions = [write(advanced(value, "authorize", time=after(1)), 1) for value in values]
    with operator(postgres_ledger, LOCKS["an intent's row"]):
        waiting = [asyncio.ensure_future(ledger.append(decision)) for decision in decisions]
        done, _ = await asyncio.wait(waiting[1:], timeout=20)
        assert len(done) == 99
        assert not waiting[0].done()
    assert await asyncio.gather(*waiting) == [2] * 100
    await ledger.close()


async def test_a_locked_saga_of_a_dead_incarnation(postgres_ledger: str) -> None:
    """L1, L2: a row that somebody keeps locked holds up neither the start of the next incarnation nor other sagas; its
    saga is released and claimed once it is free.
    """
    ledger, _ = await open_server(postgres_ledger)
    await asyncio.gather(*(ledger.start(new(saga(f"order-{number}"))) for number in range(3)))
    await ledger.abandon()
    with operator(postgres_ledger, LOCKS["the saga's row"]):
        again = SqlLedger(FaultyDialect(postgres_ledger, lease_s=SHORT_LEASE_S))
        await again.open(NodeId("node-2"), plans=plan_of)
        claimed = await again.claim(now=after(5), limit=10, held=frozenset())
        assert {found.saga.id for found in claimed} == {"order-1", "order-2"}
    (late,) = await again.claim(now=after(5), limit=10, held=frozenset({SagaId("order-1"), SagaId("order-2")}))
    assert late.saga.id == "order-0"
    await again.close()


async def test_a_participant_that_somebody_keeps(postgres_ledger: str) -> None:
    """L2: an announcement that meets a locked row is refused for now, and holds up no saga."""
    ledger, _ = await open_server(postgres_ledger)
    value = saga("order-0")
    await ledger.start(new(value))
    await ledger.put_participant(*announcement())
    with operator(postgres_ledger, "UPDATE participant SET services = '[]'"):
        begun = time.monotonic()
        with pytest.raises(LedgerUnavailableError, match="another session of the database keeps rows"):
            await ledger.put_participant(*announcement())
        assert await ledger.append(write(advanced(value, "authorize", time=after(1)), 1)) == 2
        assert time.monotonic() - begun < 3
    await ledger.put_participant(*announcement())
    await ledger.close()


def announcement() -> tuple[ParticipantRow, InstanceRow]:
    """A participant with one instance."""
    participant = ParticipantRow(
        name="shop", services=("shop.v1.ShopService",), descriptors=b"", created_time=START, updated_time=START
    )
    instance = InstanceRow(
        participant="shop", instance_id="one", address="127.0.0.1:1", capacity=0, lease_end_time=after(10)
    )
    return participant, instance


async def test_retention_leaves_a_locked_saga_for_later(postgres_ledger: str) -> None:
    """L2: a row that somebody keeps locked is emptied later and holds up neither the others nor the writer."""
    ledger, _ = await open_server(postgres_ledger)
    for number in range(3):
        value = saga(f"order-{number}")
        await ledger.start(new(value))
        await ledger.append(write(replace(value, state=SagaState.COMMITTED, ended_time=after(1), due_time=None), 1))
    with operator(postgres_ledger, LOCKS["the saga's row"]):
        assert await ledger.purge(ended_before=after(2), limit=2) == 2
        assert await ledger.purge(ended_before=after(2), limit=2) == 0
    with operator(postgres_ledger, LOCKS["an intent's row"]):
        with pytest.raises(LedgerUnavailableError, match="another session"):
            await ledger.purge(ended_before=after(2), limit=2)
        assert (await ledger.start(new(saga("order-3")))).started
    assert await ledger.purge(ended_before=after(2), limit=2) == 1
    await ledger.close()
