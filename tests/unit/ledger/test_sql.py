"""What SQL shows and costs: readable rows, indexes that are used, a fixed number of queries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event

from amends_coordinator.core.states import SagaState
from amends_coordinator.ledger import purge, reads, schema, tasks
from amends_coordinator.ledger.plans import Plans
from amends_coordinator.ports.ledger import ROOMY, Room
from amends_coordinator.ports.listing import SagaFilter
from tests.conformance.ledger.sagas import NODE, advanced, after, full, new, plan_of, saga, write
from tests.docs.pages import CHECKOUT
from tests.unit.ledger.databases import dialect, make_file, open_file, query


async def test_plain_sql_says_what_is_going_on(tmp_path: Path) -> None:
    """An operator reads words and times in UTC, not numbers and blobs."""
    path = make_file(tmp_path)
    ledger = await open_file(path)
    await ledger.start(new(saga("order-4")))
    everything = full("order-4")
    await ledger.append(replace(write(everything, 1), intents=everything.intents, dead_letters=everything.dead_letters))
    assert query(path, "SELECT step, direction, state, attempt, last_error FROM intent WHERE saga_id = 'order-4'") == [
        ("reserve", "ACTION", "PARKED", 2, "no answer\nat all"),
        ("reserve", "COMPENSATION", "PENDING", 1, ""),
    ]
    assert query(path, "SELECT state, owner, version, failure_reason, failure_time, ended_time FROM saga") == [
        ("COMPENSATION_FAILED", NODE, 2, "NO_CARRIER", "2026-11-30 00:53:20.000006", "2026-11-30 00:53:20.000011")
    ]
    attempts = "SELECT json_extract(attempts, '$[0].outcome'), json_extract(attempts, '$[1].start') FROM intent"
    assert query(path, attempts)[0] == ("UNKNOWN", "2026-11-30 00:53:20.000004")
    assert query(path, "SELECT count(*) FROM saga WHERE updated_time < datetime('2027-01-01')") == [(1,)]
    assert query(path, "SELECT reason FROM dead_letter WHERE closed_time IS NULL") == [("TIMED_OUT",)]
    await ledger.close()


def plan_for(path: Path, question: Callable[[Connection], object]) -> str:
    """How SQLite answers the last statement of a question."""
    engine = dialect(path).writer_engine()
    asked: list[tuple[str, Any]] = []

    def note(connection: object, cursor: object, statement: str, values: object, *rest: object) -> None:
        asked.append((statement, values))

    try:
        with engine.connect() as connection:
            event.listen(engine, "before_cursor_execute", note)
            question(connection)
            event.remove(engine, "before_cursor_execute", note)
            statement, values = asked[0]
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
            return "\n".join(str(row[3]) for row in rows)
    finally:
        engine.dispose()


def test_claims_use_the_index_of_due_sagas(tmp_path: Path) -> None:
    """A million ended sagas cost a claim nothing."""
    path = make_file(tmp_path)
    for room in (ROOMY, Room(each=5, left={"bank": 0, "shop": 0})):

        def claim(connection: Connection, room: Room = room) -> object:
            return tasks.claim(connection, NODE, now=after(1), limit=5, held=frozenset(), room=room)

        found = plan_for(path, claim)
        assert found.startswith("SEARCH saga USING INDEX ix_saga_due (goes_first=? AND due_time<?)")


def test_retention_uses_the_index_of_what_is_still_whole(tmp_path: Path) -> None:
    """A million ended sagas that are young, or emptied already, cost a look for old ones nothing."""
    found = plan_for(make_file(tmp_path), lambda connection: purge.purge(connection, ended_before=after(1), limit=5))
    assert found == "SEARCH saga USING INDEX ix_saga_retention (ended_time<?)"


def test_what_is_left_to_empty_is_counted_by_its_index(tmp_path: Path) -> None:
    """docs/operating.md: whoever asks how much is still to do holds nobody up, however many sagas there are. An index
    with a condition is found only by the very words of it.
    """
    page = (CHECKOUT / "docs" / "operating.md").read_text("utf-8").partition("\n## Retention\n")[2]
    question = page.partition("```sql\n")[2].partition("```")[0]
    found = plan_for(make_file(tmp_path), lambda connection: connection.exec_driver_sql(question))
    assert found == "SCAN saga USING INDEX ix_saga_retention"


def test_releasing_looks_at_active_sagas_only(tmp_path: Path) -> None:
    """A million ended sagas cost a restart nothing."""
    path = make_file(tmp_path)
    found = plan_for(path, lambda connection: tasks.give_up(connection, NODE))
    assert "USING INDEX ix_saga_due" in found


def test_lists_use_an_index_and_sort_nothing(tmp_path: Path) -> None:
    """A page costs as much as it shows, whatever else is in the ledger."""
    path = make_file(tmp_path)
    for states in (frozenset[SagaState](), frozenset({SagaState.COMMITTED})):

        def first_page(connection: Connection, states: frozenset[SagaState] = states) -> object:
            before = (after(1), saga("x").id)
            return reads.list_sagas(connection, Plans(plan_of), SagaFilter(states=states), limit=5, before=before)

        found = plan_for(path, first_page)
        assert "INDEX ix_saga_state" in found
        assert "TEMP B-TREE" not in found


async def test_loading_many_costs_as_many_queries_as_loading_one(tmp_path: Path) -> None:
    """Claiming 50 sagas asks no question per saga."""
    path = make_file(tmp_path)
    ledger = await open_file(path)
    for number in range(50):
        value = saga(f"order-{number}")
        await ledger.start(new(value))
        await ledger.append(write(advanced(value, "authorize", time=after(1)), 1))
    await ledger.close()
    engine = dialect(path).reader_engine(1)
    counts: list[int] = []

    def note(*ignored: object) -> None:
        counts[-1] += 1

    event.listen(engine, "before_cursor_execute", note)
    with engine.connect() as connection:
        plans = Plans(plan_of)
        for amount in (1, 50):
            counts.append(0)
            ids = [saga(f"order-{number}").id for number in range(amount)]
            assert len(reads.load(connection, ids, plans)) == amount
        counts.append(0)
        reads.list_sagas(connection, plans, SagaFilter(), limit=50, before=None)
    engine.dispose()
    assert counts[:2] == [5, 4]
    assert counts[2] <= 2 * len(SagaState) + 3


async def test_questions_are_answered_while_the_writer_works(tmp_path: Path) -> None:
    """F17: reading waits for no writer."""
    path = make_file(tmp_path)
    ledger = await open_file(path)
    value = saga("order-1")
    await ledger.start(new(value))
    writing = [asyncio.ensure_future(ledger.start(new(saga(f"more-{number}")))) for number in range(500)]
    assert await ledger.load(value.id) is not None
    await asyncio.gather(*writing)
    await ledger.close()


def test_every_active_state_is_in_the_index() -> None:
    """L1: no state that can still change is missing where due sagas are looked for."""
    assert all((f"'{state.value}'" in schema.ACTIVE) is state.ended for state in SagaState)
