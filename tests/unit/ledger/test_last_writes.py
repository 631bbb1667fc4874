"""What the writer remembers of its last writes, and what that spares: columns that don't change."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from amends_coordinator.core.ids import Instant, StepName
from amends_coordinator.core.saga import Intent, Saga
from amends_coordinator.core.states import Direction
from amends_coordinator.ledger import last_writes, rows, schema
from amends_coordinator.ledger.instants import instant_to_text
from amends_coordinator.ledger.last_writes import LastWrites
from amends_coordinator.ledger.row_by_row import UnlikeSeen
from amends_coordinator.ledger.statements import Statements
from amends_coordinator.ports.ledger import LedgerUnavailableError, WriteRefusedError
from tests.conformance.ledger.sagas import NODE, advanced, after, full, intent, new, saga, stored, write
from tests.unit.ledger.databases import Fault, dialect, faulty, make_file, open_file, query
from tests.waiting import eventually

NEVER_CHANGE = {"id", "plan", "input", "labels", "created_time", "traceparent", "tracestate"}
ROWS_OF_THEIR_OWN = {"intents"}


def rest_of_row(value: Saga) -> dict[str, object]:
    """What a decision writes into a saga's row, but for what moves with every one."""
    row = rows.saga_update(write(value, 1), "", lambda time: None if time is None else instant_to_text(time))
    return {name: cell for name, cell in zip(rows.SAGA_CHANGES, row, strict=False) if name not in rows.SAGA_MOVES}


@pytest.mark.parametrize(
    "name", [each.name for each in fields(Saga) if each.name not in NEVER_CHANGE | ROWS_OF_THEIR_OWN]
)
def test_no_change_of_a_row_is_taken_for_none(name: str) -> None:
    """S11: whatever a decision changes is written: a saga only moves if the rest of its row is the same."""
    before = replace(saga("order-1"), updated_time=after(1), progress_time=after(1), deadline_time=after(1))
    change: dict[str, Any] = {name: getattr(full("order-1"), name)}  # Any: each field has a type of its own
    later = replace(before, **change)
    assert later != before
    assert rows.only_moves(before, later) is (rest_of_row(before) == rest_of_row(later))
    assert rows.only_moves(before, before)


CHANGED_INTENT = replace(
    full("order-1").intents[0],
    step=StepName("ship"),
    direction=Direction.LOOKUP,
    method="shop.v1.ShopService/Find",
    request=b"other",
    created_time=after(10),
    updated_time=after(11),
)


def as_text(time: Instant | None) -> str | None:
    return None if time is None else instant_to_text(time)


def whole_row(value: Saga) -> dict[str, object]:
    """The row of a saga's only intent."""
    (row,) = rows.intents(value, value.intents, as_text).whole
    return dict(zip(rows.INTENT_COLUMNS, row, strict=True))


@pytest.mark.parametrize("name", [each.name for each in fields(Intent)])
def test_no_change_of_an_intent_is_taken_for_none(name: str) -> None:
    """S1, S11: whatever a decision changes of a stored intent is written: where only the columns that an answer changes
    are, the rest of the row is the same.
    """
    before = saga("order-1")
    change: dict[str, Any] = {name: getattr(CHANGED_INTENT, name)}  # Any: each field has a type of its own
    later = replace(before, intents=(replace(before.intents[0], **change),))
    written_ones = {*rows.INTENT_KEY, *rows.INTENT_CHANGES}  # the others stay as they were announced
    wanted = {column: cell for column, cell in whole_row(later).items() if column in written_ones}
    differing = {column for column, cell in wanted.items() if cell != whole_row(before)[column]}
    assert differing or name in {"method", "created_time"}
    written = rows.intents(later, later.intents, as_text, stored=before.intents)
    assert (len(written.settled), len(written.whole)) == ((1, 0) if differing <= {*rows.SETTLED_CHANGES} else (0, 1))
    for row in written.settled:
        named = zip((*rows.SETTLED_CHANGES, *rows.INTENT_KEY), row, strict=True)
        assert whole_row(before) | dict(named) == whole_row(before) | wanted


@pytest.mark.parametrize("name", [None, *[each.name for each in fields(Intent)]])
def test_what_a_first_announcement_leaves_out_is_what_it_would_hold(name: str | None) -> None:
    """S1: a new intent is written with constants only where these are its values."""
    change: dict[str, Any] = {} if name is None else {name: getattr(CHANGED_INTENT, name)}  # Any: as above
    value = replace(saga("order-1"), intents=(replace(intent("reserve"), **change),))
    written = rows.intents(value, value.intents, as_text, stored=())
    assert len(written.announced) + len(written.whole) == 1
    assert name is not None or written.announced
    with closing(sqlite3.connect(":memory:")) as database:
        constants = database.execute(f"SELECT {', '.join(rows.ANNOUNCED_CONSTANTS.values())}").fetchone()
    for row in written.announced:
        held = dict(zip((*rows.ANNOUNCED_COLUMNS, *rows.ANNOUNCED_CONSTANTS), (*row, *constants), strict=True))
        assert held == whole_row(value)


def test_payloads_take_a_bounded_part_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand sagas of 1 MiB are not kept for having been written; the newest write is recognised all the same."""
    monkeypatch.setattr(last_writes, "REMEMBERED_BYTES", 10)
    last = LastWrites(10)
    first, second, large = (write(replace(saga(f"order-{n}"), input=b"x" * n, intents=()), 1) for n in (4, 6, 11))
    for each in (first, second):
        last.sent(each, "batch-1")
    assert last.was_sent(first, "batch-1")
    last.sent(second, "batch-2")  # the same saga is counted once
    assert last.was_sent(first, "batch-1")
    last.sent(large, "batch-3")
    assert not last.was_sent(first, "batch-1")
    assert not last.was_sent(second, "batch-2")
    assert last.was_sent(large, "batch-3")


def test_what_was_only_sent_says_nothing_about_the_row() -> None:
    """V16, S11: until the commit is answered nobody knows what the row holds, but the write is recognised."""
    last = LastWrites(10)
    first = saga("order-1")
    decision = write(first, 1)
    last.sent(new(first), "batch-1")
    assert last.before(decision) is None
    last.stored(new(first))
    assert last.before(decision) is None, "another start than the one that was sent"
    start = new(first)
    last.sent(start, "batch-1")
    last.stored(start)
    assert last.before(decision) is first
    assert last.before(write(first, 2)) is None, "somebody else has written the saga since"
    last.sent(decision, "batch-2")
    assert last.before(write(first, 2)) is None
    assert last.was_sent(write(first, 1), "batch-2")
    assert not last.was_sent(write(first, 1), "batch-1")
    assert not last.was_sent(write(first, 2), "batch-2")


def test_only_the_newest_are_remembered() -> None:
    """However many sagas there are, memory stays bounded."""
    last = LastWrites(2)
    starts = [new(saga(f"order-{number}")) for number in range(3)]
    for start in (starts[0], starts[1], starts[0], starts[2]):
        last.sent(start, "batch-1")
        last.stored(start)
    known = [last.before(write(start.saga, 1)) is not None for start in starts]
    assert known == [True, False, True]


async def test_a_write_that_was_never_stored_is_not_built_upon(tmp_path: Path) -> None:
    """S11: a decision's commit fails for good, a person writes the saga, and the same comes of the next decision: it is
    stored whole, although it changes nothing more than the first one would have left to change.
    """
    fault = Fault()
    path = make_file(tmp_path)
    ledger = await open_file(path, patience_s=0.2, factory=faulty(fault))
    value = saga("order-1")
    await ledger.start(new(value))
    passed = replace(advanced(value, "authorize", time=after(1)), point_of_no_return_passed=True)
    fault.before = 10**6
    with pytest.raises(LedgerUnavailableError):
        await ledger.append(write(passed, 1))
    fault.before = 0
    with closing(sqlite3.connect(path, timeout=10)) as outside, outside:
        outside.execute("UPDATE saga SET version = version + 1")
    again = replace(passed, updated_time=after(3))
    assert await ledger.append(write(again, 2)) == 3
    assert await ledger.load(value.id) == stored(again, 3)
    await ledger.close()


async def test_an_answer_whose_call_was_removed_is_refused(tmp_path: Path) -> None:
    """S11: somebody has removed the row of a call by hand: its answer is not taken for written, others are, and whoever
    looks at the saga anew can go on.
    """
    path = make_file(tmp_path)
    ledger = await open_file(path)
    value, other = saga("order-1"), saga("order-2")
    await ledger.start(new(value))
    await ledger.start(new(other))
    with closing(sqlite3.connect(path, timeout=10)) as outside, outside:
        outside.execute("DELETE FROM intent WHERE saga_id = 'order-1'")
    lost, kept = (advanced(each, "authorize", time=after(1)) for each in (value, other))
    answers = await asyncio.gather(ledger.append(write(lost, 1)), ledger.append(write(kept, 1)), return_exceptions=True)
    assert isinstance(answers[0], WriteRefusedError)
    assert "removed its row" in str(answers[0])
    assert answers[1] == 2
    assert await ledger.load(other.id) == stored(kept, 2)
    await ledger.close()


async def test_columns_that_do_not_change_are_not_written(tmp_path: Path) -> None:
    """A step that does nothing but move its saga on leaves the columns of most indexes alone; the next change of one is
    written all the same.
    """
    path = make_file(tmp_path)
    ledger = await open_file(path)
    value = saga("order-1")
    await ledger.start(new(value))
    with closing(sqlite3.connect(path, timeout=10)) as outside, outside:
        outside.execute("CREATE TABLE touched (what TEXT)")
        outside.execute(
            "CREATE TRIGGER t AFTER UPDATE OF state ON saga BEGIN INSERT INTO touched VALUES ('state'); END"
        )
        outside.execute(
            "CREATE TRIGGER i AFTER UPDATE OF request ON intent BEGIN INSERT INTO touched VALUES ('request'); END"
        )
    moved = advanced(value, "authorize", time=after(1))
    assert await ledger.append(write(moved, 1)) == 2
    assert query(path, "SELECT count(*) FROM touched") == [(0,)]
    changed = replace(advanced(moved, "ship", time=after(2)), abort_requested=True)
    assert await ledger.append(write(changed, 2)) == 3
    assert query(path, "SELECT count(*) FROM touched") == [(1,)]
    assert await ledger.load(value.id) == stored(changed, 3)
    await ledger.close()


def test_no_condition_of_an_index_makes_a_table_for_each_row(tmp_path: Path) -> None:
    """A list of three values in a condition would be a table that SQLite makes for each row of a saga it writes."""
    sqlite = dialect(make_file(tmp_path))
    engine = sqlite.writer_engine()
    written: list[str] = []
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        driver.execute("PRAGMA foreign_keys = OFF")
        driver.set_trace_callback(written.append)
        statements = Statements(sqlite, engine.dialect)
        value = saga("order-1")
        statements.insert_saga.run(connection, [rows.saga_insert(new(value), "", as_text)])
        statements.move_saga.run(connection, [rows.saga_move(write(value, 1), "", as_text)])
        statements.update_saga.run(connection, [rows.saga_update(write(value, 1), "", as_text)])
        driver.set_trace_callback(None)
        steps = [row[1] for text in written for row in driver.execute(f"EXPLAIN {text}")]
    engine.dispose()
    assert len(written) == 3
    assert steps.count("IdxInsert") > 10
    assert "OpenEphemeral" not in steps


async def test_starts_of_which_some_exist_share_a_batch(tmp_path: Path) -> None:
    """S9, L2: an id that exists keeps its saga, and those beside it are started with all their rows."""
    ledger = await open_file(make_file(tmp_path))
    await ledger.start(new(saga("order-1"), request="first"))
    begun = [asyncio.ensure_future(ledger.start(new(saga(f"order-{number}")))) for number in range(3)]
    await eventually(lambda: all(start.done() for start in begun), what="the starts")
    assert [start.result().started for start in begun] == [True, False, True]
    for start in begun:
        assert await ledger.load(start.result().stored.saga.id) == start.result().stored
    await ledger.close()


def test_the_guard_finds_its_sagas_by_their_ids(tmp_path: Path) -> None:
    """A million sagas cost a batch nothing, and the guard answers of those that are unlike only."""
    engine = dialect(make_file(tmp_path)).writer_engine()
    asked: list[str] = []
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        driver.set_trace_callback(asked.append)
        guard = UnlikeSeen(schema.saga)
        assert guard.fetch(connection, [("order-1", 1, NODE), ("order-2", 1, NODE)]) == {
            "order-1": None,
            "order-2": None,
        }
        found = [row[3] for row in driver.execute(f"EXPLAIN QUERY PLAN {asked[0]}")]
    engine.dispose()
    assert "SEARCH saga USING INDEX sqlite_autoindex_saga_1 (id=?) LEFT-JOIN" in found
