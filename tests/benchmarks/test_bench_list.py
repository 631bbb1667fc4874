"""Lists cost what they show, not what the ledger holds: the work for each filter is counted on two sizes of ledger."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import make_url

from amends_coordinator.core.definition import StoredDefinition
from amends_coordinator.core.ids import DefinitionVersion, Instant
from amends_coordinator.core.states import SagaState
from amends_coordinator.ledger import listing, reads
from amends_coordinator.ledger.dialect import SqlDialect
from amends_coordinator.ledger.factory import dialect_of
from amends_coordinator.ledger.plans import Plans
from amends_coordinator.ledger.sqlite import SqliteDialect
from amends_coordinator.ledger.tasks import put_definition
from amends_coordinator.ports.listing import SagaFilter, ServedBy, Span
from tests.benchmarks import list_rows
from tests.benchmarks.list_fill import fill
from tests.conformance.ledger.rigs import empty_ledger
from tests.conformance.ledger.sagas import plan_of

SMALL, BIG = 1_500, 5_000
LIMIT = 20
STEPS_PER_CALL = 250
"""SQLite tells after so many steps of its virtual machine."""

ENDED = frozenset({SagaState.COMMITTED, SagaState.COMPENSATED})
FAILED = frozenset({SagaState.COMPENSATION_FAILED})


def questions(now: Instant) -> dict[str, SagaFilter]:
    """Every filter, and combinations of which a wrong way would lead past most of the ledger."""

    def ago(days: float) -> Instant:
        return Instant(now - int(days * list_rows.DAY_US))

    production, tenant = MappingProxyType({"env": "production"}), MappingProxyType({"tenant": "t7"})
    return {
        "nothing": SagaFilter(),
        "ended": SagaFilter(states=ENDED),
        "definition": SagaFilter(definition_name="order"),
        "old definition": SagaFilter(definition_name="legacy"),
        "version": SagaFilter(definition_name="order", definition_version=version("order", 0)),
        "label of all": SagaFilter(labels=production),
        "label of some": SagaFilter(labels=tenant),
        "label of one": SagaFilter(labels=MappingProxyType({"order": "o-17"})),
        "attention": SagaFilter(attention_required=True),
        "unproven": SagaFilter(unproven=True),
        "owed": SagaFilter(compensations_owed=True),
        "served": SagaFilter(served_by=ServedBy(participant="p", names=frozenset({"order", "legacy"}))),
        "chosen": SagaFilter(served_by=ServedBy(participant="bank-a")),
        "created within": SagaFilter(created=Span(earliest=ago(16), latest=ago(14))),
        "updated since": SagaFilter(updated=Span(earliest=ago(0.01))),
        "updated until": SagaFilter(updated=Span(latest=ago(20))),
        "updated within": SagaFilter(updated=Span(earliest=ago(15.01), latest=ago(15))),
        "stalled": SagaFilter(stalled_since=ago(0.5)),
        "label of all and failed": SagaFilter(labels=production, states=FAILED),
        "old definition and label of all": SagaFilter(definition_name="legacy", labels=production),
        "old definition, written lately": SagaFilter(definition_name="legacy", updated=Span(earliest=ago(5))),
        "served, of a tenant, ended": SagaFilter(served_by=ServedBy(participant="bank-a"), labels=tenant, states=ENDED),
    }


def version(name: str, number: int) -> str:
    """A version as the definitions of this test have it."""
    return f"{list_rows.NAMES.index(name):08x}{number:08x}"


def ready(engine: Engine, dialect: SqlDialect) -> None:
    """Store the definitions."""
    with engine.begin() as connection:
        for number in range(list_rows.VERSIONS):
            for name in list_rows.NAMES:
                stored = StoredDefinition(
                    name=name,
                    version=DefinitionVersion(version(name, number)),
                    content=name.encode(),
                    created_time=Instant(number + 1),
                )
                put_definition(connection, dialect, stored)


def now_of(connection: Connection) -> Instant:
    """When the newest saga was started."""
    page = reads.list_sagas(connection, Plans(plan_of), SagaFilter(), limit=1, before=None)
    return page.sagas[0].saga.created_time


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that are as small against these ledgers as the real ones are against a million."""
    monkeypatch.setattr(listing, "PROBE", 40)
    monkeypatch.setattr(listing, "FIRST_SLICE", 30)
    monkeypatch.setattr(listing, "MOST_VISITS", 240)
    monkeypatch.setattr(listing, "MOST_IN_WINDOW", 100)


def grown(small: dict[str, int], big: dict[str, int], spare: int) -> dict[str, tuple[int, int]]:
    """The questions that cost much more on a ledger more than three times as big."""
    return {name: (small[name], big[name]) for name in small if big[name] > 1.5 * small[name] + spare}


def steps_on(path: Path, size: int) -> dict[str, int]:
    """How many steps SQLite takes for each question."""
    path.write_bytes(empty_ledger())
    dialect = SqliteDialect(make_url(f"sqlite:///{path}"))
    writer = dialect.writer_engine()
    ready(writer, dialect)
    writer.dispose()
    fill(f"sqlite:///{path}", size, lambda _: None)
    engine, plans, found = dialect.reader_engine(1), Plans(plan_of), dict[str, int]()
    with engine.connect() as connection:
        for name, wanted in questions(now_of(connection)).items():
            calls = count()
            driver: Any = connection.connection.driver_connection  # SQLAlchemy leaves the drivers' types open
            driver.set_progress_handler(partial(_counted, calls), STEPS_PER_CALL)
            reads.list_sagas(connection, plans, wanted, limit=LIMIT, before=None)
            driver.set_progress_handler(None, 0)
            found[name] = next(calls) * STEPS_PER_CALL
    engine.dispose()
    return found


def _counted(calls: Iterator[int]) -> None:
    """Count, and let SQLite go on."""
    next(calls)


def test_lists_of_a_bigger_file_cost_no_more(tmp_path: Path) -> None:
    """Promise: SQLite takes about as many steps for a page of a small ledger and of a bigger one."""
    small, big = steps_on(tmp_path / "small.sqlite3", SMALL), steps_on(tmp_path / "big.sqlite3", BIG)
    assert grown(small, big, spare=8_000) == {}


def visits_on(url: str, size: int) -> dict[str, int]:
    """How many rows PostgreSQL looks at for each question."""
    dialect = dialect_of(url)
    engine = dialect.writer_engine()
    ready(engine, dialect)
    fill(url, size, lambda _: None)
    plans, found = Plans(plan_of), dict[str, int]()
    with engine.connect() as connection:
        connection.exec_driver_sql("SET enable_seqscan = off")  # a small table may be read whole; a big one never
        for name, wanted in questions(now_of(connection)).items():
            with asked(engine) as statements:
                reads.list_sagas(connection, plans, wanted, limit=LIMIT, before=None)
            found[name] = sum(visits(connection, statement, values) for statement, values in statements)
    engine.dispose()
    return found


@contextmanager
def asked(engine: Engine) -> Generator[list[tuple[str, Any]]]:
    """The statements that are executed meanwhile, with their values."""
    statements: list[tuple[str, Any]] = []

    def note(connection: object, cursor: object, statement: str, values: object, *rest: object) -> None:
        statements.append((statement, values))

    event.listen(engine, "before_cursor_execute", note)
    yield statements
    event.remove(engine, "before_cursor_execute", note)


def visits(connection: Connection, statement: str, values: Any) -> int:
    """The rows that a statement looks at: those that its scans give, and those that they throw away."""
    rows = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", values).scalar_one()
    plan = (json.loads(rows) if isinstance(rows, str) else rows)[0]["Plan"]
    return sum(map(_of_node, _nodes(plan)))


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)


def _of_node(node: dict[str, Any]) -> int:
    if "Scan" not in node["Node Type"] or "Subquery" in node["Node Type"]:
        return 0
    thrown = sum(node.get(f"Rows Removed by {why}", 0) for why in ("Filter", "Index Recheck"))
    return int((node["Actual Rows"] + thrown) * node["Actual Loops"])


def test_lists_of_a_bigger_database_cost_no_more(postgres_ledger: str, ledger_databases: Any) -> None:
    """Promise: PostgreSQL looks at about as many rows for a page of a small ledger and of a bigger one."""
    other = ledger_databases.take()
    small = visits_on(ledger_databases.server.url(other), SMALL)
    ledger_databases.give_back(other)
    assert grown(small, visits_on(postgres_ledger, BIG), spare=150) == {}
