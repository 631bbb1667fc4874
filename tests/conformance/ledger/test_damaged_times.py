"""Times that somebody has damaged with SQL: what can't be fetched is left out of lists, and hides nothing else."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, LiteralString

import psycopg
import pytest

from amends_coordinator.core.ids import DeadLetterId, DefinitionVersion, SagaId
from amends_coordinator.core.states import DeadLetterReason
from amends_coordinator.ports.ledger import UnreadableDefinitionError, UnreadableSagaError
from amends_coordinator.ports.listing import SagaFilter, Span
from amends_coordinator.ports.repairs import LetterFilter
from tests.conformance.ledger.rigs import PostgresRig, Rig, SqliteRig, opened
from tests.conformance.ledger.sagas import DEFINITION, after, new, saga

if TYPE_CHECKING:
    from pathlib import Path

SAGAS = ("bad", "fine", "good", "worse", "worst")

FILTERS = {
    "all": SagaFilter(),
    "of a label": SagaFilter(labels={"team": "shop"}),
    "of two": SagaFilter(labels={"team": "shop"}, definition_name="order"),
    "written lately": SagaFilter(updated=Span(earliest=after(-1), latest=after(1_000))),
}


@pytest.fixture(params=["sqlite", "postgresql"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    """A storage that has a database."""
    return SqliteRig(tmp_path) if request.param == "sqlite" else PostgresRig(request.getfixturevalue("postgres_ledger"))


def damage(rig: Rig, table: LiteralString, column: LiteralString) -> None:
    """Make times of three sagas none, in all the ways in which they sort."""
    key: LiteralString = "id" if table == "saga" else "saga_id"
    if isinstance(rig, SqliteRig):
        with closing(sqlite3.connect(rig.path, timeout=10)) as file, file:
            for saga_id, value in (("bad", "2026-02-30 10:00:00.000000"), ("worse", 7), ("worst", b"\xff")):
                assert file.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (value, saga_id)).rowcount
    elif isinstance(rig, PostgresRig):
        with psycopg.connect(rig.url) as connection:
            for saga_id, value in (("bad", "-infinity"), ("worse", "infinity"), ("worst", "0044-03-15 BC")):
                statement: LiteralString = f"UPDATE {table} SET {column} = %s WHERE {key} = %s"
                assert connection.execute(statement, (value, saga_id)).rowcount


@pytest.mark.parametrize("table", ["saga", "saga_label"])
async def test_a_saga_whose_place_in_lists_is_damaged_hides_no_other(rig: Rig, table: LiteralString) -> None:
    """L2: every list, page after page, has the sagas whose times are sound."""
    ledger = await opened(rig)
    for saga_id in SAGAS:
        await ledger.start(new(replace(saga(saga_id), labels={"team": "shop"})))
    damage(rig, table, "created_time")

    for name, wanted in FILTERS.items():
        found: list[str] = []
        page = await ledger.list_sagas(wanted, limit=1, before=None)
        found += [stored.saga.id for stored in page.sagas]
        while page.next is not None:
            page = await ledger.list_sagas(wanted, limit=1, before=page.next)
            found += [stored.saga.id for stored in page.sagas]
        assert len(found) == len(set(found))
        assert {"good", "fine"} <= set(found) <= set(SAGAS), name
    await ledger.close()


@pytest.mark.parametrize("number", [0, 1])
async def test_a_definition_whose_time_is_damaged_keeps_no_other_from_its_name(rig: Rig, number: int) -> None:
    """L2: further versions of its name are registered, the newest last; it is said to be damaged itself."""
    ledger = await opened(rig)
    if isinstance(rig, SqliteRig):
        with closing(sqlite3.connect(rig.path, timeout=10)) as file, file:
            file.execute(
                "UPDATE saga_definition SET created_time = ?", (("2999-02-30 10:00:00.000000", b"\xff")[number],)
            )
    elif isinstance(rig, PostgresRig):
        with psycopg.connect(rig.url) as connection:
            connection.execute("UPDATE saga_definition SET created_time = %s", (("infinity", "-infinity")[number],))
    stored = [
        await ledger.put_definition(replace(DEFINITION, version=DefinitionVersion(each))) for each in ("1a", "2b")
    ]
    assert [each.version for each in stored] == ["1a", "2b"]
    assert stored[0].created_time < stored[1].created_time
    with pytest.raises(UnreadableDefinitionError):
        await ledger.put_definition(DEFINITION)
    await ledger.heartbeat(after(1))
    await ledger.close()


@pytest.mark.parametrize("column", ["opened_time", "closed_time"])
async def test_a_dead_letter_whose_times_are_damaged_hides_no_other(rig: Rig, column: LiteralString) -> None:
    """L2: it is left out of lists and counts, and whoever asks for it hears that it can't be read."""
    ledger = await opened(rig)
    for saga_id in SAGAS:
        await ledger.start(new(saga(saga_id)))
        await ledger.put_dead_letter(SagaId(saga_id), reason=DeadLetterReason.TERMINATED, last_error="", now=after(1))
    damage(rig, "dead_letter", column)

    wanted = LetterFilter(closed_too=True)
    first = await ledger.list_dead_letters(wanted, limit=1, after=None)
    second = await ledger.list_dead_letters(wanted, limit=1, after=first.next)
    assert [letter.saga_id for letter in (*first.letters, *second.letters)] == ["fine", "good"]
    assert second.next is None
    (group,) = await ledger.group_dead_letters(LetterFilter())
    assert group.count == 2
    for saga_id in ("bad", "worse", "worst"):
        with pytest.raises(UnreadableSagaError, match="can't be read"):
            await ledger.load_dead_letter(DeadLetterId(f"{saga_id}/-/-/1"))
    await ledger.close()
