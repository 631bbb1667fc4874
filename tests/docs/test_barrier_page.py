"""The statements of docs/barrier.md, run on a real PostgreSQL as the page says: its timelines come out as it tells."""

from __future__ import annotations

import ast
import re
from contextlib import closing
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from threading import Thread

import psycopg
import pytest

from amends import barrier
from tests.docs.pages import CHECKOUT
from tests.waiting import eventually_blocking

PAGE = CHECKOUT / "docs" / "barrier.md"
DRAWN_SQL = re.compile(r"<!-- drawn: (?P<name>[a-z_ ]+) -->\n\n```sql\n(?P<text>.*?)```\n", re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SQL = {found["name"].removeprefix("statement "): found["text"] for found in DRAWN_SQL.finditer(PAGE.read_text("utf-8"))}

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

NOW = datetime.now(UTC)
OLD = NOW - timedelta(days=61)
HORIZON = NOW - timedelta(days=60)

Values = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """One transaction of a participant that keeps the rules by hand."""

    connection: psycopg.Connection[Values]

    def run(self, name: str, *values: object) -> psycopg.RawCursor[Values]:
        """One of the page's statements."""
        return psycopg.RawCursor(self.connection).execute(SQL[name].encode(), values or None)

    def claim(self, key: str, state: str = "running", *, step_time: datetime = NOW) -> bool:
        """Whether the key is ours now."""
        method, request_hash = ("", None) if state == "null" else ("shop.v1.Shop/Buy", b"hash")
        identity = ("ledger", key, "saga", "step", "action", method, state, request_hash, step_time)
        return self.run("claim", *identity).rowcount == 1

    def state(self, key: str) -> object:
        """What stands in the row of a key; None if there is none."""
        row = self.run("read", "ledger", key).fetchone()
        return None if row is None else row[0]


class Database:
    """The participant's database, to whoever connects."""

    def __init__(self, url: str) -> None:
        self._url = url

    def begin(self) -> Call:
        """A transaction that nobody has ended yet."""
        return Call(psycopg.connect(self._url))

    def ask(self, statement: str) -> object:
        """What an outsider reads."""
        with closing(psycopg.connect(self._url)) as connection:
            row = connection.execute(statement.encode()).fetchone()
        return None if row is None else row[0]


@pytest.fixture(name="database")
def _database(postgres_database: str) -> Database:
    database = Database(postgres_database)
    with closing(database.begin().connection) as connection, connection:
        connection.execute(SQL["barrier tables"].encode())
    return database


def test_every_statement_is_on_the_page() -> None:
    """The page shows the tables and all that the participant in Go runs, and Go makes the same tables."""
    folder = CHECKOUT / "participants" / "go" / "amends" / "sql"
    files = {file.stem: file.read_text("utf-8") for file in folder.glob("*.sql")}
    tables = files.pop("tables")
    assert {name: text for name, text in SQL.items() if name in files} == files
    assert tables == SQL["barrier tables"], (
        "copy the tables of docs/barrier.md to participants/go/amends/sql/tables.sql"
    )


def test_what_its_python_uses_exists() -> None:
    """Every block of Python parses, and what it takes from the barrier and from an effect is there."""
    used: set[str] = set()
    for block in PYTHON.findall(PAGE.read_text("utf-8")):
        names = (node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Attribute))
        used |= {f"{node.value.id}.{node.attr}" for node in names if isinstance(node.value, ast.Name)}
    of_barrier = {name.removeprefix("barrier.") for name in used if name.startswith("barrier.")}
    of_effect = {name.removeprefix("effect.") for name in used if name.startswith("effect.")}
    assert of_barrier == {"TABLES", "effect", "lookup", "transaction"} & set(barrier.__all__)
    assert of_effect == {"key_uuid", "action_key_uuid"} & {field.name for field in fields(barrier.Effect)}


def test_two_copies_run_once(database: Database) -> None:
    """F03: the second waits for the first, and finds its response; had the first rolled back, the key were its own."""
    first, second = database.begin(), database.begin()
    assert first.claim("k")
    answers: list[object] = []
    waiting = Thread(target=lambda: answers.append(second.claim("k")))
    waiting.start()
    eventually_blocking(
        lambda: database.ask(WAITING) == 1,
        what="the second copy waits",
    )
    first.run("finish", "ledger", "k", b"response", None)
    first.connection.commit()
    waiting.join()
    assert answers == [False]
    assert second.run("read", "ledger", "k").fetchone() == ("done", b"hash", b"response", None, None, None, None)
    third = database.begin()
    assert third.claim("other")
    third.connection.rollback()
    assert second.claim("other")
    for call in (first, second, third):
        call.connection.close()


def test_a_wait_is_bounded(database: Database) -> None:
    """A copy gives up before its caller does, and its connection can be used again."""
    first, second = database.begin(), database.begin()
    assert first.claim("k")
    second.run("bound_waits", "20ms")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        second.claim("k")
    second.connection.rollback()
    first.connection.close()  # dies with its work undone
    assert second.claim("k")
    second.connection.close()


def test_a_mark_keeps_a_late_action_out(database: Database) -> None:
    """F04: what the compensation or the lookup wrote is what the action finds."""
    compensation, action = database.begin(), database.begin()
    assert compensation.claim("saga/step/compensation")
    assert compensation.claim("saga/step/action", "null")
    compensation.run("finish", "ledger", "saga/step/compensation", b"", None)
    compensation.connection.commit()
    assert not action.claim("saga/step/action")
    assert (action.state("saga/step/action"), action.state("saga/step/compensation")) == ("null", "done")
    for call in (compensation, action):
        call.connection.close()


def test_a_refusal_stays(database: Database) -> None:
    """Written in a transaction of its own, after the work was rolled back."""
    action = database.begin()
    assert action.claim("k")
    action.connection.rollback()
    assert action.claim("k", "rejected")
    action.run("refuse", "ledger", "k", "FAILED_PRECONDITION", "sold out", "SOLD_OUT")
    action.connection.commit()
    assert not action.claim("k")
    row = action.run("read", "ledger", "k").fetchone()
    assert row == ("rejected", b"hash", None, None, "FAILED_PRECONDITION", "sold out", "SOLD_OUT")
    action.connection.close()


def test_whoever_finds_a_row_gone_finds_the_horizon(database: Database) -> None:
    """V12: set before anything is deleted, never moved back, and only what is older is deleted, batch by batch."""
    call = database.begin()
    for number in range(3):
        assert call.claim(f"old-{number}", "null", step_time=OLD)
    assert call.claim("young", "null")
    call.run("forget", HORIZON)
    call.run("forget", HORIZON - timedelta(days=1))
    call.connection.commit()
    assert [call.run("purge", HORIZON, 2).rowcount for _ in range(3)] == [2, 1, 0]
    call.connection.commit()
    assert (call.state("old-0"), call.state("young")) == (None, "null")
    assert call.claim("old-0", step_time=OLD)
    assert call.run("horizon").fetchall() == [(HORIZON,)]
    call.connection.close()
