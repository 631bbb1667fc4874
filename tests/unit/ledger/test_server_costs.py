"""What the ledger costs a PostgreSQL: few statements however many sagas, and indexes that are used."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, event

from amends_coordinator.core.states import SagaState
from amends_coordinator.ledger import purge, reads, tasks
from amends_coordinator.ledger.plans import Plans
from amends_coordinator.ports.listing import SagaFilter
from tests.conformance.ledger.sagas import NODE, advanced, after, new, plan_of, saga, write
from tests.unit.ledger.servers import FaultyDialect, open_server


async def test_many_sagas_cost_as_many_statements_as_one(postgres_ledger: str) -> None:
    """Rule 2: a batch is one transaction of a handful of statements, one per table, whatever its size."""
    ledger, dialect = await open_server(postgres_ledger)
    statements: list[str] = []

    def note(connection: object, cursor: object, statement: str, *rest: object) -> None:
        statements.append(statement)

    def listen(connection: Connection) -> None:
        if not event.contains(connection, "before_cursor_execute", note):
            event.listen(connection, "before_cursor_execute", note)

    dialect.begun = listen
    await ledger.start(new(saga("before")))
    counts: dict[int, tuple[int, int]] = {}
    for size in (1, 200):
        values = [saga(f"order-{size}-{number}") for number in range(size)]
        statements.clear()
        await asyncio.gather(*(ledger.start(new(value)) for value in values))
        starting = len(statements)
        statements.clear()
        decisions = [write(advanced(value, "authorize", time=after(1)), 1) for value in values]
        await asyncio.gather(*(ledger.append(decision) for decision in decisions))
        counts[size] = (starting, len(statements))
    assert counts[200] == counts[1]
    await ledger.close()


def plan_of_question(url: str, question: Callable[[Connection], object]) -> str:
    """How the server would answer the first statement of a question if there were many rows."""
    engine = FaultyDialect(url).writer_engine()
    asked: list[tuple[str, Any]] = []

    def note(connection: object, cursor: object, statement: str, values: object, *rest: object) -> None:
        asked.append((statement, values))

    try:
        with engine.connect() as connection:
            event.listen(engine, "before_cursor_execute", note)
            question(connection)
            event.remove(engine, "before_cursor_execute", note)
            # The tables are empty, so that any plan would do.
            connection.exec_driver_sql("SET enable_seqscan = off")
            connection.exec_driver_sql("SET enable_bitmapscan = off")
            connection.exec_driver_sql("SET enable_sort = off")
            statement, values = asked[0]
            rows = connection.exec_driver_sql(f"EXPLAIN {statement}", values).fetchall()
            return "\n".join(str(row[0]) for row in rows)
    finally:
        engine.dispose()


def test_claims_use_the_index_of_due_sagas(postgres_ledger: str) -> None:
    """L1: a million ended sagas cost a claim, and a restart, nothing."""
    found = plan_of_question(
        postgres_ledger, lambda connection: tasks.claim(connection, NODE, now=after(1), limit=5, held=frozenset())
    )
    assert "Index Scan using ix_saga_due" in found
    found = plan_of_question(postgres_ledger, lambda connection: tasks.release_others(connection, NODE))
    assert "using ix_saga_due" in found


def test_retention_uses_the_index_of_what_is_still_whole(postgres_ledger: str) -> None:
    """L2: a million ended sagas that are young, or emptied already, cost a look for old ones nothing."""
    found = plan_of_question(
        postgres_ledger, lambda connection: purge.purge(connection, ended_before=after(1), limit=5)
    )
    assert "Index Scan using ix_saga_retention" in found
    assert "Sort" not in found


@pytest.mark.parametrize("states", [frozenset[SagaState](), frozenset({SagaState.COMMITTED})])
def test_lists_use_an_index_and_sort_nothing(postgres_ledger: str, states: frozenset[SagaState]) -> None:
    """A page costs as much as it shows, whatever else is in the ledger."""

    def first_page(connection: Connection) -> object:
        before = (after(1), saga("x").id)
        return reads.list_sagas(connection, Plans(plan_of), SagaFilter(states=states), limit=5, before=before)

    found = plan_of_question(postgres_ledger, first_page)
    assert "Scan Backward using ix_saga_state" in found
    assert "Sort" not in found
