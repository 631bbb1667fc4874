"""One process per ledger on PostgreSQL: an advisory lock that can be lost, and a lease before anybody is fenced."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from amends_coordinator.core.ids import NodeId, SagaId
from amends_coordinator.ledger import migrate, open_ledger
from amends_coordinator.ledger.sql import SqlLedger
from amends_coordinator.ports.ledger import LedgerLockedError, LedgerUnavailableError, NodeFencedError
from tests.conformance.ledger.sagas import DEFINITION, NODE, advanced, after, new, plan_of, saga, stored, write
from tests.postgres import PostgresServer
from tests.unit.ledger.servers import SHORT_LEASE_S, FaultyDialect, ask, open_server
from tests.waiting import eventually

NEXT = NodeId("node-2")

HOLDER = """
import asyncio, sys
from tests.conformance.ledger.sagas import new, saga
from tests.unit.ledger.servers import open_server

async def hold() -> None:
    ledger, _ = await open_server(sys.argv[1])
    await ledger.start(new(saga("order-1")))
    print("holding", flush=True)
    await asyncio.Event().wait()

asyncio.run(hold())
"""


def end_session_of_the_lock(url: str) -> None:
    """End the session that holds the lock, as an administrator does."""
    ended = ask(
        url,
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks JOIN pg_stat_activity USING (pid) "
        "WHERE locktype = 'advisory' AND datname = current_database()",
    )
    assert ended == [(True,)]


def start_holder(url: str) -> subprocess.Popen[bytes]:
    """A process that opens the ledger and keeps it."""
    checkout = Path(__file__).resolve().parents[3]
    return subprocess.Popen([sys.executable, "-c", HOLDER, url], cwd=checkout, stdout=subprocess.PIPE)


@pytest.mark.crash
async def test_a_second_process_is_refused_until_the_first_is_killed(postgres_ledger: str) -> None:
    """S7, L1: the refusal says who has it; kill -9 gives the lock back, and a lease later the dead one's sagas."""
    holder = start_holder(postgres_ledger)
    try:
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == b"holding\n"
        ledger = SqlLedger(FaultyDialect(postgres_ledger, lease_s=SHORT_LEASE_S))
        with pytest.raises(LedgerLockedError, match=r"session \d+ \(amends\) from 127.0.0.1 holds the lock.*Stop that"):
            await ledger.open(NEXT, plans=plan_of)
        with pytest.raises(LedgerLockedError):
            migrate.upgrade(postgres_ledger)
        holder.kill()
        await asyncio.to_thread(holder.wait)
        begun = time.monotonic()
        await ledger.open(NEXT, plans=plan_of)
        assert time.monotonic() - begun >= SHORT_LEASE_S
        (found,) = await ledger.claim(now=after(1), limit=5, held=frozenset())
        assert found.saga.id == SagaId("order-1")
        await ledger.close()
    finally:
        holder.kill()
        holder.communicate()


async def test_who_starts_right_after_another_waits_for_its_session_to_end(postgres_ledger: str) -> None:
    """L1: the server notices only after a while that a process is gone; its successor isn't refused for that."""
    before, _ = await open_server(postgres_ledger)
    ledger = SqlLedger(FaultyDialect(postgres_ledger))
    opening = asyncio.create_task(ledger.open(NEXT, plans=plan_of))
    tried = (
        "SELECT pid FROM pg_stat_activity WHERE query ~ 'pg_try_advisory_lock' AND pid <> pg_backend_pid() AND "
        "datname = current_database() AND pid NOT IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted)"
    )
    await eventually(lambda: bool(ask(postgres_ledger, tried)), what="the next one has asked for the lock, too")
    await before.close()
    await opening
    await ledger.close()


async def test_after_a_graceful_stop_nobody_waits(postgres_ledger: str) -> None:
    """L1: a process that gave its ledger back fenced itself, so the next one begins at once."""
    ledger = open_ledger(postgres_ledger, lease_s=60)
    await ledger.open(NODE, plans=plan_of)
    await ledger.close()
    again = open_ledger(postgres_ledger, lease_s=60)
    await asyncio.wait_for(again.open(NEXT, plans=plan_of), 20)
    await again.close()
    assert ask(postgres_ledger, "SELECT node_id, fenced FROM node ORDER BY 1") == [(NODE, True), (NEXT, True)]


async def test_a_lost_lock_ends_the_incarnation(postgres_ledger: str) -> None:
    """S7: a process that lost its lock writes nothing any more, although it is alive and nobody has fenced it; whoever
    comes next waits for a lease and takes its sagas.
    """
    ledger, _ = await open_server(postgres_ledger)
    value = saga("order-1")
    await ledger.start(new(value))
    end_session_of_the_lock(postgres_ledger)
    await eventually(lambda: _holders(postgres_ledger) == 0, what="the lock is free")
    for _ in range(2):
        with pytest.raises((NodeFencedError, LedgerUnavailableError)):
            await ledger.append(write(advanced(value, "authorize", time=after(1)), 1))
    with pytest.raises(NodeFencedError, match="lost the lock of postgresql://"):
        await ledger.heartbeat(after(2))
    assert await ledger.load(value.id) == stored(value, 1)
    again = SqlLedger(FaultyDialect(postgres_ledger, lease_s=SHORT_LEASE_S))
    await again.open(NEXT, plans=plan_of)
    (found,) = await again.claim(now=after(1), limit=5, held=frozenset())
    assert found.version == 3
    await ledger.close()
    await again.close()


async def test_a_lock_that_is_lost_while_its_holder_waits_for_the_lease(postgres_ledger: str) -> None:
    """S7: nobody is fenced by a process that did not hold the lock for the whole lease."""
    ledger, _ = await open_server(postgres_ledger)
    await ledger.abandon()
    again = SqlLedger(FaultyDialect(postgres_ledger, lease_s=3))
    opening = asyncio.ensure_future(again.open(NEXT, plans=plan_of))
    await eventually(lambda: ask(postgres_ledger, "SELECT count(*) FROM node") == [(2,)], what="the next one is there")
    end_session_of_the_lock(postgres_ledger)
    with pytest.raises((NodeFencedError, LedgerUnavailableError)):
        await opening
    assert ask(postgres_ledger, "SELECT fenced FROM node WHERE node_id = %s", NODE) == [(False,)]


async def test_a_server_that_starts_again(postgres: PostgresServer, postgres_ledger: str) -> None:
    """S7, L1: with the server goes the lock. While it is away everything holds still; once it is back this incarnation
    is over, because nobody knows who had the lock meanwhile.
    """
    ledger, _ = await open_server(postgres_ledger, patience_s=0.2)
    value = saga("order-1")
    await ledger.start(new(value))
    decision = write(advanced(value, "authorize", time=after(1)), 1)
    postgres.kill()
    try:
        with pytest.raises(LedgerUnavailableError):
            await ledger.append(decision)
    finally:
        postgres.start()

    async def over() -> bool:
        try:
            await ledger.heartbeat(after(2))
        except NodeFencedError:
            return True
        except LedgerUnavailableError:
            return False
        raise AssertionError("it wrote without the lock")

    while not await over():
        pass
    await ledger.abandon()


async def test_two_ledgers_in_one_database(postgres_ledger: str) -> None:
    """Each schema of a database can hold a ledger; they lock nobody out."""
    ask(postgres_ledger, "CREATE SCHEMA other")
    other_url = f"{postgres_ledger}?options=-csearch_path%3Dother"
    try:
        migrate.upgrade(other_url)
        one, other = open_ledger(postgres_ledger), open_ledger(other_url)
        await one.open(NODE, plans=plan_of)
        await other.open(NODE, plans=plan_of)
        await one.put_definition(DEFINITION)
        assert await other.get_definition(DEFINITION.name, None) is None
        await one.close()
        await other.close()
    finally:
        ask(postgres_ledger, "DROP SCHEMA other CASCADE")


def _holders(url: str) -> int:
    found = ask(
        url,
        "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) "
        "WHERE locktype = 'advisory' AND datname = current_database()",
    )
    return int(str(found[0][0]))
