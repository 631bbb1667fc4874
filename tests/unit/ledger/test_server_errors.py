"""What a PostgreSQL answers when it does not do what it was asked: commits, clashes, refused data, an outage."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import psycopg
import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from amends_coordinator.core.ids import NodeId, SagaId, StepName
from amends_coordinator.core.saga import Failure, Saga
from amends_coordinator.ledger.sql import SqlLedger
from amends_coordinator.ports.ledger import LedgerUnavailableError, Started, SupersededError, Write, WriteRefusedError
from amends_coordinator.ports.repairs import AuditEntry
from tests.conformance.ledger.sagas import advanced, after, new, plan_of, saga, stored, write
from tests.postgres import PostgresServer
from tests.unit.ledger.servers import SHORT_LEASE_S, FaultyDialect, ask, lose_answer, open_server, times
from tests.waiting import eventually


def end_session(connection: Connection) -> None:
    """A hook: the server ends the session that the transaction runs on, as an administrator or a crash does."""
    process_id = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    url = connection.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    ask(url, "SELECT pg_terminate_backend(%s, 5000)", process_id)


def fail_silently(connection: Connection) -> None:
    """A hook: a statement fails, and whoever sent it goes on to commit as if it had not."""
    with pytest.raises(DBAPIError):
        connection.exec_driver_sql("SELECT 1/0")


def raising(sqlstate: str) -> Callable[[Connection], None]:
    """A hook: the server reports an error of this kind."""

    def fail(connection: Connection) -> None:
        connection.exec_driver_sql(f"DO $$ BEGIN RAISE EXCEPTION 'planted' USING ERRCODE = '{sqlstate}'; END $$")

    return fail


async def started(ledger: SqlLedger, count: int) -> list[Saga]:
    """So many sagas, started."""
    values = [saga(f"order-{number}") for number in range(count)]
    results = await asyncio.gather(*(ledger.start(new(value)) for value in values))
    assert results == [Started(started=True, stored=stored(value, 1)) for value in values]
    return values


@pytest.mark.timeline
@pytest.mark.parametrize("hook", [lose_answer, end_session])
async def test_v16_a_lost_commit_answer(postgres_ledger: str, hook: Callable[[Connection], None]) -> None:
    """V16: decisions and starts whose commit answer was lost, on a connection that is gone, are sent again and applied
    exactly once: no saga is superseded, refused or told to roll back.
    """
    ledger, dialect = await open_server(postgres_ledger)
    dialect.committed = times(1, hook) if hook is lose_answer else None
    dialect.committing = times(1, hook) if hook is end_session else None
    values = await started(ledger, 10)
    dialect.committed = times(2, hook) if hook is lose_answer else None
    dialect.committing = times(2, hook) if hook is end_session else None
    changed = [advanced(value, "authorize", time=after(1)) for value in values]
    assert await asyncio.gather(*(ledger.append(write(value, 1)) for value in changed)) == [2] * 10
    assert [await ledger.load(value.id) for value in changed] == [stored(value, 2) for value in changed]
    assert ledger.statistics.sent_again == 3
    await ledger.close()


@pytest.mark.timeline
async def test_v22_a_lost_commit_answer_and_an_operators_write_in_between(postgres_ledger: str) -> None:
    """V22: a decision that is stored is recognised, although a non-owner has written the saga since."""
    ledger, dialect = await open_server(postgres_ledger)
    (value,) = await started(ledger, 1)
    changed = advanced(value, "authorize", time=after(1))

    def interfere(connection: Connection) -> None:
        ask(postgres_ledger, "UPDATE saga SET version = version + 1, abort_requested = true")
        lose_answer(connection)

    dialect.committed = times(1, interfere)
    assert await ledger.append(write(changed, 1)) == 2
    assert await ledger.load(value.id) == stored(replace(changed, abort_requested=True), 3)
    with pytest.raises(SupersededError):
        await ledger.append(write(advanced(changed, "ship", time=after(2)), 2))
    await ledger.close()


@pytest.mark.timeline
async def test_v22_a_lost_commit_answer_and_an_abort_in_between(postgres_ledger: str) -> None:
    """V22, S10: a decision whose answer stayed lost is repeated by its maker after an abort was accepted: it is
    recognised as stored, and the next one, which did not see the abort, is decided again.
    """
    ledger, dialect = await open_server(postgres_ledger, patience_s=0.3)
    (value,) = await started(ledger, 1)
    changed = advanced(value, "authorize", time=after(1))
    dialect.committed = lose_answer
    with pytest.raises(LedgerUnavailableError):
        await ledger.append(write(changed, 1))
    dialect.committed = None
    failure = Failure(step=None, reason="ABORTED", status_code="", message="a person asked", time=after(2))
    audit = AuditEntry(
        id="audit-1", saga_id=value.id, dead_letter_id=None, verb="AbortSaga", actor="ada", claimed_actor="",
        reason="", details="{}", created_time=after(2),
    )  # fmt: skip
    answer = await ledger.request_abort(value.id, failure=failure, audit=audit)
    assert answer is not None
    assert answer.accepted
    assert await ledger.append(write(changed, 1)) == 2
    with pytest.raises(SupersededError) as superseded:
        await ledger.append(write(advanced(changed, "ship", time=after(3)), 2))
    assert superseded.value.current.version == 3
    assert superseded.value.current.saga.abort_requested
    await ledger.close()


async def test_a_commit_that_is_answered_with_rollback_is_none(postgres_ledger: str) -> None:
    """S11: the server's word for what became of COMMIT is looked at; what it rolled back is sent again."""
    ledger, dialect = await open_server(postgres_ledger)
    dialect.committing = times(1, fail_silently)
    (value,) = await started(ledger, 1)
    assert ledger.statistics.sent_again == 1
    assert ask(postgres_ledger, "SELECT id, version FROM saga") == [(value.id, 1)]
    await ledger.close()


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
async def test_clashes_are_sent_again_at_once(postgres_ledger: str, sqlstate: str) -> None:
    """Rule 4: a deadlock or a serialization failure costs nobody a pause; one that stays is an outage like others."""
    ledger, dialect = await open_server(postgres_ledger, patience_s=0.2)
    dialect.begun = times(2, raising(sqlstate))
    await started(ledger, 3)
    assert ledger.statistics.sent_again == 0
    dialect.begun = raising(sqlstate)
    with pytest.raises(LedgerUnavailableError, match=sqlstate):
        await ledger.append(write(advanced(saga("order-0"), "authorize", time=after(1)), 1))
    dialect.begun = None
    await ledger.close()


async def test_data_that_is_refused_is_refused_alone(postgres_ledger: str) -> None:
    """B3, L2: one value that the server does not take fails its own decision; all others of the batch are applied.
    Nothing is cut to what a column holds, and no error quotes what is stored.
    """
    ledger, _ = await open_server(postgres_ledger)
    values = await started(ledger, 64)
    decisions = [write(advanced(value, "authorize", time=after(1)), 1) for value in values]
    first = decisions[0].intents[0]
    bad = {
        10: (replace(first, spent_us=2**80),),  # more than the column holds (22003)
        20: (replace(decisions[20].saga.intents[1], method="m" * 300),),  # longer than the column (22001)
        30: (replace(first, step=cast("StepName", None)),),  # no key (23502)
        40: (decisions[40].saga.intents[0],) * 2,  # one row twice in one statement (21000)
        50: (replace(first, attempt=2**40),),  # more than another column holds
    }
    for number, intents in bad.items():
        changed = replace(decisions[number].saga, intents=intents[:1])
        decisions[number] = Write(saga=changed, seen_version=1, intents=intents)
    results = await asyncio.gather(*(ledger.append(decision) for decision in decisions), return_exceptions=True)
    refused = {number: result for number, result in enumerate(results) if result != 2}
    assert set(refused) == set(bad)
    for number, error in refused.items():
        assert isinstance(error, WriteRefusedError)
        assert f"order-{number}" in str(error)
        assert "SQLSTATE" in str(error)
        assert "request" not in str(error)
        assert await ledger.load(SagaId(f"order-{number}")) == stored(values[number], 1)
    await ledger.close()


@pytest.mark.timeline
async def test_b03_nul_in_a_payload_and_in_text(postgres_ledger: str) -> None:
    """B3: bytes are stored as they came; NUL and lone surrogates in text are cleaned; 63 other sagas notice nothing."""
    ledger, _ = await open_server(postgres_ledger)
    values = await started(ledger, 64)
    decisions = [write(advanced(value, "authorize", time=after(1)), 1) for value in values]
    odd = replace(decisions[5].intents[0], response=b"\0\xff\0", last_error="a\0b\ud800c", last_code="\0")
    decisions[5] = write(replace(decisions[5].saga, intents=(odd, decisions[5].intents[1])), 1)
    assert await asyncio.gather(*(ledger.append(decision) for decision in decisions)) == [2] * 64
    found = await ledger.load(SagaId("order-5"))
    assert found is not None
    assert found.saga.intents[0] == replace(odd, last_error="a\ufffdb\ufffdc", last_code="\ufffd")
    await ledger.close()


async def test_an_outage_of_the_server(postgres: PostgresServer, postgres_ledger: str) -> None:
    """L1, S11: while the server is away whoever waits is told in time; once it is back the lost lock ends this
    incarnation, and the next one finds all that was answered.
    """
    ledger, _ = await open_server(postgres_ledger, patience_s=0.3)
    (value,) = await started(ledger, 1)
    postgres.kill()
    try:
        with pytest.raises(LedgerUnavailableError):
            await ledger.append(write(advanced(value, "authorize", time=after(1)), 1))
        with pytest.raises(LedgerUnavailableError):
            await ledger.load(value.id)
    finally:
        postgres.start()
    await ledger.abandon()
    again = SqlLedger(FaultyDialect(postgres_ledger, lease_s=SHORT_LEASE_S))
    await again.open(NodeId("node-2"), plans=plan_of)
    found = await again.load(value.id)
    assert found == stored(replace(value, due_time=value.updated_time), 2, owner=None)
    await again.close()


async def test_questions_survive_connections_that_ended(postgres_ledger: str) -> None:
    """L2: a reader whose session the server ended while it rested asks again on a new one, and nobody notices."""
    ledger, _ = await open_server(postgres_ledger)
    (value,) = await started(ledger, 1)
    assert await asyncio.gather(*(ledger.load(value.id) for _ in range(10))) == [stored(value, 1)] * 10
    ended = ask(
        postgres_ledger,
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() "
        "AND query = 'ROLLBACK'",
    )
    assert (True,) in ended, "readers end what they asked in a transaction that is rolled back"
    assert await asyncio.gather(*(ledger.load(value.id) for _ in range(10))) == [stored(value, 1)] * 10
    await ledger.close()


async def test_a_frozen_transaction_is_ended_by_the_server(postgres_ledger: str) -> None:
    """S7, L1: a node that stops in the middle of a transaction keeps its locks for less than its lease."""
    dialect = FaultyDialect(postgres_ledger, lease_s=3)
    engine = dialect.writer_engine()
    connection = engine.connect()
    dialect.begin_write(connection)
    connection.exec_driver_sql("LOCK TABLE node IN ACCESS EXCLUSIVE MODE")

    def is_free() -> bool:
        try:
            ask(postgres_ledger, "SET lock_timeout = 20; SELECT count(*) FROM node")
        except psycopg.errors.LockNotAvailable:
            return False
        return True

    assert not is_free()
    await eventually(is_free, what="the server ends the transaction that idles", bound_s=5)
    with pytest.raises(DBAPIError):
        connection.exec_driver_sql("SELECT 1")
    connection.close()
    engine.dispose()


def test_what_sessions_may_do(postgres_ledger: str) -> None:
    """S7: waits and idle transactions end within half a lease, statements within one, and commits reach the disk."""
    dialect = FaultyDialect(postgres_ledger, lease_s=4)
    engine = dialect.writer_engine()
    with engine.connect() as connection:
        found = {
            name: connection.exec_driver_sql(f"SHOW {name}").scalar_one()
            for name in (
                "lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout", "tcp_keepalives_idle",
                "tcp_user_timeout", "synchronous_commit", "TimeZone", "client_encoding",
            )
        }  # fmt: skip
    engine.dispose()
    assert found == {
        "lock_timeout": "1s",
        "statement_timeout": "4s",
        "idle_in_transaction_session_timeout": "2s",
        "tcp_keepalives_idle": "1",
        "tcp_user_timeout": "4000",
        "synchronous_commit": "on",
        "TimeZone": "UTC",
        "client_encoding": "UTF8",
    }


def test_commits_reach_the_disk_whatever_the_server_is_set_to(postgres_ledger: str) -> None:
    """S11: a server that commits without the disk does not do so for the ledger; a stricter one stays so."""
    for value, expected in (("off", "on"), ("remote_apply", "remote_apply")):
        url = f"{postgres_ledger}?options=-csynchronous_commit%3D{value}"
        engine = FaultyDialect(url).writer_engine()
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SHOW synchronous_commit").scalar_one() == expected
        engine.dispose()


@pytest.mark.skipif(sys.platform != "linux", reason="stops processes that Linux lists")
async def test_a_server_that_says_nothing(postgres: PostgresServer, postgres_ledger: str) -> None:
    """S11, L2: a frozen server keeps every connection open and answers nothing. Whoever asks is told in bounded time,
    and so is whoever closes the ledger; once it goes on, so does everything.
    """
    ledger, _ = await open_server(postgres_ledger, patience_s=0.3, lease_s=SHORT_LEASE_S)
    (value,) = await started(ledger, 1)
    decision = write(advanced(value, "authorize", time=after(1)), 1)
    with postgres.frozen():
        async with asyncio.timeout(20):
            results = await asyncio.gather(
                ledger.append(decision), ledger.load(value.id), ledger.count_by_state(), return_exceptions=True
            )
            assert [type(result) for result in results] == [LedgerUnavailableError] * 3
            with pytest.raises(LedgerUnavailableError):
                await ledger.close()
    again = SqlLedger(FaultyDialect(postgres_ledger, lease_s=SHORT_LEASE_S))
    await again.open(NodeId("node-2"), plans=plan_of)
    assert await again.load(value.id) is not None
    await again.close()
