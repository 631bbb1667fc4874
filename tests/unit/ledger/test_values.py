"""Values on their way to the database and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.dialects import postgresql

from amends_coordinator.core.ids import Instant, NodeId
from amends_coordinator.core.saga import Attempt
from amends_coordinator.core.states import Outcome
from amends_coordinator.ledger import open_ledger
from amends_coordinator.ledger.instants import InstantType, instant_to_text, text_to_instant
from amends_coordinator.ledger.memory import MemoryLedger
from amends_coordinator.ledger.rows import attempts_to_json, clean
from amends_coordinator.ledger.sql import SqlLedger
from amends_coordinator.ledger.values import attempts_from_json
from amends_coordinator.ports.ledger import LedgerError

EARLIEST, LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999
instants = st.integers(EARLIEST, LATEST).map(Instant)


@given(instants, instants)
def test_instants_survive_and_sort_as_text(one: Instant, other: Instant) -> None:
    """No microsecond is lost, and what is later sorts later."""
    assert text_to_instant(instant_to_text(one)) == one
    assert (instant_to_text(one) < instant_to_text(other)) == (one < other)


def test_an_instant_reads_as_a_time_in_utc() -> None:
    """What an operator sees."""
    assert instant_to_text(Instant(1)) == "1970-01-01 00:00:00.000001"
    assert instant_to_text(Instant(-1)) == "1969-12-31 23:59:59.999999"


@pytest.mark.parametrize("beyond", [EARLIEST - 1, LATEST + 1])
def test_an_instant_beyond_the_calendar_is_refused(beyond: int) -> None:
    """It would be read back as another one."""
    with pytest.raises(OverflowError):
        instant_to_text(Instant(beyond))


@given(instants)
def test_instants_survive_where_times_have_a_type(instant: Instant) -> None:
    """The same through a datetime with a time zone, as PostgreSQL takes it."""
    make_dialect: Any = postgresql.dialect  # SQLAlchemy left it without types
    column, dialect = InstantType(), make_dialect()
    bound = column.process_bind_param(instant, dialect)
    assert bound is not None
    assert bound.utcoffset() is not None
    assert column.process_result_value(bound, dialect) == instant


@given(
    st.lists(
        st.builds(
            Attempt,
            number=st.integers(1, 10**6),
            node=st.text(max_size=20).map(NodeId),
            start_time=instants,
            end_time=instants,
            status_code=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
            outcome=st.none() | st.sampled_from(Outcome),
        )
    ).map(tuple)
)
def test_attempts_survive_as_json(attempts: tuple[Attempt, ...]) -> None:
    """The JSON that is written by hand is JSON, and says the same."""
    text = attempts_to_json(attempts)
    assert len(json.loads(text)) == len(attempts)
    assert attempts_from_json(text) == attempts


def test_an_attempt_on_its_way_survives_as_json() -> None:
    """Without an end it has neither code nor outcome."""
    attempts = (Attempt(number=1, node=NodeId("n"), start_time=Instant(5)),)
    assert attempts_from_json(attempts_to_json(attempts)) == attempts


@given(st.text(st.characters()))
def test_cleaned_text_can_be_stored(text: str) -> None:
    """B3: whatever a participant says, what is stored is UTF-8 without NUL, and nothing else of it changes."""
    cleaned = clean(text)
    assert "\0" not in cleaned
    assert cleaned.encode("utf-8").decode("utf-8") == cleaned
    assert len(cleaned) == len(text)


def test_urls() -> None:
    """Which adapter a URL means."""
    assert isinstance(open_ledger("memory:"), MemoryLedger)
    assert isinstance(open_ledger("sqlite:///ledger.sqlite3"), SqlLedger)
    assert isinstance(open_ledger("postgresql://user:secret@host:5432/name?sslmode=require"), SqlLedger)
    assert isinstance(open_ledger("postgres:///name"), SqlLedger)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "sqlite://",
        "sqlite:///:memory:",
        "redis://user:secret@host/1",
        "postgresql+asyncpg://user:secret@host/1",
        "postgresql://user:secret@host:port/1",
        "://secret@",
    ],
)
def test_urls_that_mean_nothing(url: str) -> None:
    """They are refused with what to write instead, and without the password."""
    with pytest.raises(LedgerError, match="memory:") as caught:
        open_ledger(url)
    assert "secret" not in str(caught.value)
