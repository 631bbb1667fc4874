"""What people write on a bad day: the answer to a commit gets lost, somebody keeps a row locked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import LiteralString, TypeAlias

import pytest

from amends_coordinator.core.ids import SagaId
from amends_coordinator.core.states import DeadLetterReason
from amends_coordinator.ledger.sql import SqlLedger
from amends_coordinator.ports.ledger import LedgerUnavailableError, UnreadableSagaError
from tests.conformance.ledger.sagas import DEFINITION, NODE, advanced, after, new, plan_of, saga
from tests.conformance.ledger.sagas import write as decision
from tests.conformance.ledger.verbs import cause, entry, parked, put, retried, write
from tests.unit.ledger.databases import Fault, dialect, faulty, make_file, open_file
from tests.unit.ledger.servers import lose_answer, open_server, operator, times

SAGA = SagaId("order-1")
LOCK: LiteralString = "SELECT * FROM saga WHERE id = 'order-1' FOR UPDATE"

Losing: TypeAlias = tuple[SqlLedger, Callable[[], None]]


@asynccontextmanager
async def losing(database: str, request: pytest.FixtureRequest, folder: Path) -> AsyncGenerator[Losing]:
    """An opened ledger, and what makes it lose the answer to its next commit."""
    if database == "sqlite":
        fault = Fault()
        ledger = await open_file(make_file(folder), factory=faulty(fault))

        def lose() -> None:
            fault.after = 1
    else:
        ledger, dialect = await open_server(request.getfixturevalue("postgres_ledger"))

        def lose() -> None:
            dialect.committed = times(1, lose_answer)

    yield ledger, lose
    await ledger.close()


@pytest.mark.timeline
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
async def test_v13_an_aborts_commit_answer_is_lost(
    database: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """V13, S10: the abort is sent again by itself, is accepted once, and leaves one audit entry."""
    async with losing(database, request, tmp_path) as (ledger, lose):
        await ledger.start(new(saga("order-1")))
        lose()
        answer = await ledger.request_abort(SAGA, failure=cause(), audit=entry("order-1"))
        assert answer is not None
        assert (answer.accepted, answer.stored.version, answer.stored.saga.failure) == (True, 2, cause())
        assert len((await ledger.list_audit_entries(SAGA, limit=5, before=None)).entries) == 1
        assert ledger.statistics.sent_again == 1


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
async def test_a_verbs_commit_answer_is_lost(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Rule 4: a verb that was written although its answer was lost is recognised by its audit entry."""
    async with losing(database, request, tmp_path) as (ledger, lose):
        value = await put(ledger, parked("order-1"))
        lose()
        assert await ledger.append_verb(write(retried(value, time=after(9)), 2), entry("order-1")) == 3
        assert len((await ledger.list_audit_entries(SAGA, limit=5, before=None)).entries) == 1
        assert ledger.statistics.sent_again == 1


async def test_a_dead_letter_is_told_once_though_its_commit_answer_is_lost(tmp_path: Path) -> None:
    """Rule 4, L2: what was opened before the answer was lost is the asker's own, and is told as one."""
    fault, told = Fault(), list[tuple[DeadLetterReason, int]]()
    path = make_file(tmp_path)
    ledger = SqlLedger(
        dialect(path, factory=faulty(fault)), letters_opened=lambda reason, count: told.append((reason, count))
    )
    await ledger.open(NODE, plans=plan_of)
    await ledger.put_definition(DEFINITION)
    failed, unreadable = DeadLetterReason.DRIVER_FAILED, DeadLetterReason.UNREADABLE
    await ledger.start(new(saga("order-1")))
    fault.after = 1
    opened = await ledger.put_dead_letter(SAGA, reason=failed, last_error="boom", now=after(3))
    assert opened == "order-1/-/-/1"
    assert await ledger.put_dead_letter(SAGA, reason=failed, last_error="boom", now=after(4)) is None
    fault.after = 1
    await ledger.tell_unreadable({SAGA: UnreadableSagaError("odd")}, after(5))
    await ledger.tell_unreadable({SAGA: UnreadableSagaError("odd")}, after(6))
    assert told == [(failed, 1), (unreadable, 1)]
    await ledger.close()


@pytest.mark.timeline
async def test_b08_an_abort_of_a_locked_saga_holds_up_no_other(postgres_ledger: str) -> None:
    """B8, L2: while somebody keeps a saga's row, an abort of it waits, and others are written; then it is accepted."""
    ledger, _ = await open_server(postgres_ledger)
    for name in ("order-1", "order-2"):
        await ledger.start(new(saga(name)))
    with operator(postgres_ledger, LOCK):
        aborting = asyncio.ensure_future(ledger.request_abort(SAGA, failure=cause(), audit=entry("order-1")))
        value = saga("order-2")
        for version, step in enumerate(("authorize", "ship"), start=1):
            value = advanced(value, step, time=after(version))
            await ledger.append(decision(value, version))
        assert not aborting.done()
    answer = await aborting
    assert answer is not None
    assert answer.accepted
    await ledger.close()


async def test_a_saga_that_stays_locked_is_said_to_be(postgres_ledger: str) -> None:
    """B8: whoever asks is told what is in the way once patience is over, and nothing is changed."""
    ledger, _ = await open_server(postgres_ledger, patience_s=0.2)
    value = await put(ledger, parked("order-1"))
    with operator(postgres_ledger, LOCK), pytest.raises(LedgerUnavailableError, match="keeps its row locked"):
        await ledger.append_verb(write(retried(value, time=after(9)), 2), entry("order-1"))
    found = await ledger.load(SAGA)
    assert found is not None
    assert found.version == 2
    await ledger.close()
