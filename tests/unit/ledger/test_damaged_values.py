"""What SQLite lets anybody put into a column: whatever it is, it is one saga that can't be read, and no more."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from amends_coordinator.core.ids import SagaId
from amends_coordinator.core.states import DeadLetterReason
from amends_coordinator.ports.ledger import UnreadableSagaError
from amends_coordinator.ports.listing import SagaFilter
from amends_coordinator.ports.repairs import LetterFilter
from tests.conformance.ledger.sagas import after, new, saga
from tests.unit.ledger.databases import make_file, open_file

if TYPE_CHECKING:
    from pathlib import Path

OF_CALLS = {
    "bytes for a text": "UPDATE intent SET last_error = x'ff'",
    "a text that is none": "UPDATE intent SET last_code = CAST(x'ff' AS TEXT)",
    "a text for a number": "UPDATE intent SET attempt = 'seven'",
    "a text for bytes": "UPDATE intent SET request = 'text'",
    "a number for a time": "UPDATE intent SET updated_time = 7",
    "a label that is none": "UPDATE saga_label SET value = CAST(x'ff' AS TEXT)",
}
OF_THE_ROW = {
    "a text that is none": "UPDATE saga SET failure_message = CAST(x'ff' AS TEXT)",
    "a state that is no text": "UPDATE saga SET state = CAST(x'ff' AS TEXT)",
    "a place that is no text": "UPDATE saga SET waits_for = CAST(x'ff' AS TEXT)",
    "a name that is no text": "UPDATE saga SET definition_name = CAST(x'ff' AS TEXT)",
    "bytes for a text": "UPDATE saga SET traceparent = x'ff'",
    "a number for a time": "UPDATE saga SET failure_time = 7",
    "a time that is none": "UPDATE saga SET deadline_time = '0 o''clock'",
    "a text for bytes": "UPDATE saga SET input = 'text'",
}


async def test_a_damaged_count_of_writes_is_one_that_nobody_has_seen(tmp_path: Path) -> None:
    """L2: whoever watches the saga looks at it and finds that it can't be read; who watches others is told as ever."""
    path = make_file(tmp_path)
    ledger = await open_file(path)
    for saga_id in ("bad", "worse", "good"):
        await ledger.start(new(saga(saga_id), owner=None))
    with closing(sqlite3.connect(path, timeout=10)) as outside, outside:
        outside.execute("UPDATE saga SET version = 'many' WHERE id = 'bad'")
        outside.execute("UPDATE saga SET version = 2.5 WHERE id = 'worse'")
    counts = await ledger.write_counts([SagaId("bad"), SagaId("worse"), SagaId("good")])
    assert counts[SagaId("good")] == 1
    assert min(counts[SagaId("bad")], counts[SagaId("worse")]) > 1
    await ledger.close()


@pytest.mark.parametrize(
    "damage", [*OF_CALLS.values(), *OF_THE_ROW.values()], ids=lambda text: text.partition("SET ")[2]
)
async def test_a_damaged_value_is_one_saga_that_cannot_be_read(tmp_path: Path, damage: str) -> None:
    """L1, L2: others of the same batch are claimed and listed; it gets a dead letter that says what is wrong."""
    path = make_file(tmp_path)
    ledger = await open_file(path)
    for saga_id in ("bad", "fine", "good"):
        await ledger.start(new(replace(saga(saga_id), labels={"team": "shop"}), owner=None))
    column = "id" if damage.startswith("UPDATE saga SET") else "saga_id"
    with closing(sqlite3.connect(path, timeout=10)) as outside, outside:
        assert outside.execute(f"{damage} WHERE {column} = 'bad'").rowcount

    claimed = await ledger.claim(now=after(1), limit=10, held=frozenset())
    assert [stored.saga.id for stored in claimed] == ["fine", "good"]
    with pytest.raises(UnreadableSagaError, match="saga bad can't be read by this release"):
        await ledger.load(SagaId("bad"))
    await ledger.count_by_state()
    listed = {stored.saga.id for stored in (await ledger.list_sagas(SagaFilter(), limit=10, before=None)).sagas}
    assert {"fine", "good"} <= listed
    (found,) = (await ledger.list_dead_letters(LetterFilter(), limit=10, after=None)).letters
    assert (found.saga_id, found.letter.reason) == ("bad", DeadLetterReason.UNREADABLE)
    assert found.letter.last_error.isprintable()
    assert list(await ledger.claim(now=after(2), limit=10, held=frozenset(listed))) == [], (
        "it is left alone for a while"
    )
    await ledger.close()
