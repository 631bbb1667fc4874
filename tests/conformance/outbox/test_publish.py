"""What is published becomes true together with the work of its transaction, or not at all."""

from __future__ import annotations

import asyncio
import re
import threading
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.wrappers_pb2 import StringValue
from sqlalchemy import event, select, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from amends.outbox import MemoryPublisher, OutboxUseError, Relay, writing
from amends.outbox.tables import OUTBOX
from tests.conformance.outbox.rigs import QUICK, Rig, say
from tests.waiting import eventually, eventually_blocking


async def test_an_event_is_written_with_its_transaction(rig: Rig) -> None:
    """O1: once the transaction is committed its events are in the outbox, complete and in order."""
    event_id = await rig.run(lambda session: [say(session, "a", "first"), say(session, "a", "second")][0])
    with rig.sync_sessions() as session:
        row = session.execute(select(OUTBOX).order_by(OUTBOX.c.id)).first()
    assert row is not None
    assert (row.event_id, row.topic, row.key, row.type_name) == (event_id, "orders", "a", "google.protobuf.StringValue")
    assert (row.content_type, row.saga_id, row.step) == ("application/protobuf", None, None)
    assert (row.headers, row.attempt_count, row.last_error) == ({}, 0, None)
    assert timedelta(0) <= datetime.now(UTC) - row.create_time.replace(tzinfo=UTC) < timedelta(minutes=1)
    assert rig.written() == [("a", "first"), ("a", "second")]


async def test_what_is_rolled_back_was_never_published(rig: Rig) -> None:
    """O1: an exception that ends the transaction takes its events along; the next transaction is another one."""

    def fail(session: Session | AsyncSession) -> None:
        say(session, "a", "never")
        raise LookupError

    with pytest.raises(LookupError):
        await rig.run(fail)
    await rig.publish("a", "later")
    assert rig.written() == [("a", "later")]


async def test_a_savepoint_takes_its_events_along(rig: Rig) -> None:
    """O1: what was published within a savepoint that is rolled back was never published; the rest was."""

    def work(session: Session) -> None:
        say(session, "a", "before")
        with session.begin_nested():
            say(session, "a", "kept")
        undone = session.begin_nested()
        with session.begin_nested():
            say(session, "a", "released, but inside of one that isn't")
        say(session, "a", "undone")
        undone.rollback()
        say(session, "a", "after")

    async with rig.async_sessions.begin() as session:
        await session.run_sync(work)
    assert rig.written() == [("a", "before"), ("a", "kept"), ("a", "after")]


async def test_a_savepoint_that_was_left_open(rig: Rig) -> None:
    """O1: a commit that takes an open savepoint along either writes the events or fails; it never leaves them out."""

    def leave_open(session: Session | AsyncSession) -> None:
        say(session, "a", "never")
        plain = session.sync_session if isinstance(session, AsyncSession) else session
        plain.begin_nested()

    with pytest.raises(OutboxUseError, match="a savepoint in it is still open"):
        await rig.run(leave_open)
    assert rig.written() == []
    with rig.sync_sessions() as session:
        session.begin_nested()
        say(session, "a", "from the innermost outwards")
        session.commit()
    with rig.sync_sessions.begin() as session:
        for number in range(3):
            with session.begin_nested():
                say(session, "a", f"savepoint {number}")
    assert [said for _, said in rig.written()] == [
        "from the innermost outwards",
        *(f"savepoint {number}" for number in range(3)),
    ]


async def test_a_session_that_is_used_again(rig: Rig) -> None:
    """O1: neither a commit nor a session closed in the middle leaves events to its next transaction."""
    async with rig.async_sessions() as session:
        say(session, "a", "first")
        await session.commit()
        say(session, "a", "dropped with its transaction")
        await session.close()
        say(session, "a", "second")
        await session.execute(text("SELECT 1"))
        await session.commit()
        await session.commit()
        say(session, "a", "undone")
        await session.rollback()
        await session.commit()
    assert rig.written() == [("a", "first"), ("a", "second")]


async def test_a_commit_that_somebody_stops(rig: Rig) -> None:
    """O1: events are written once, also where a first commit was refused by another listener."""
    with rig.sync_sessions() as session:
        say(session, "a", "once")
        refusals = [ValueError("not yet")]

        def refuse(_: Session) -> None:
            if refusals:
                raise refusals.pop()

        event.listen(session, "before_commit", refuse)
        with pytest.raises(ValueError, match="not yet"):
            session.commit()
        session.commit()
    assert rig.written() == [("a", "once")]


async def test_without_its_tables_it_says_how_to_make_them(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """O1: where the outbox's tables were forgotten, publisher and relay say what is missing; the work is undone."""
    await rig.alter(text("ALTER TABLE amends_outbox RENAME TO elsewhere"))
    try:
        with pytest.raises(OutboxUseError, match=re.escape("outbox.TABLES.create_all(engine)")):
            await rig.publish("a", "never")
        async with Relay(rig.sessions, MemoryPublisher(), QUICK):
            await eventually(lambda: "no table amends_outbox" in caplog.text, what="the relay says so")
    finally:
        await rig.alter(text("ALTER TABLE elsewhere RENAME TO amends_outbox"))
    assert rig.written() == []


async def test_numbers_of_one_key_grow_in_the_order_of_commits(rig: Rig) -> None:
    """O3: a number is given to an event only when all earlier ones of its key are committed, whoever began first."""
    with rig.sync_sessions() as slow, rig.sync_sessions() as quick:
        say(slow, "a", "published first, committed second")
        say(quick, "a", "published second, committed first")
        quick.commit()
        slow.commit()
    assert rig.written() == [("a", "published second, committed first"), ("a", "published first, committed second")]


async def test_many_writers_of_a_few_keys(rig: Rig) -> None:
    """O3: transactions with the same keys in any order wait for each other, never in a circle, and none is lost."""

    def write(number: int) -> None:
        keys = ["a", "b", "c"] if number % 2 else ["c", "b", "a"]
        for turn in range(5):
            with rig.sync_sessions.begin() as session:
                for key in keys:
                    say(session, key, f"{number}.{turn}")

    await asyncio.gather(*(asyncio.to_thread(write, number) for number in range(4)))
    written = rig.written()
    assert sorted(written) == sorted((key, f"{n}.{turn}") for key in "abc" for n in range(4) for turn in range(5))
    for number in range(4):
        mine = [said for key, said in written if key == "a" and said.startswith(f"{number}.")]
        assert mine == [f"{number}.{turn}" for turn in range(5)]


def test_a_key_that_is_being_committed_holds_back_its_next_writer(postgres_database: str) -> None:
    """O3: on PostgreSQL a number that is given but not committed is never overtaken by one of the same key."""
    rig = Rig(postgres_database.replace("postgresql:", "postgresql+psycopg:"), threaded=True)
    committed: list[str] = []
    with rig.sync_sessions() as first:
        writing.write(first, [_row("a", "first")])  # what a commit does first, and then stands still

        def follow() -> None:
            with rig.sync_sessions.begin() as second:
                say(second, "a", "second")
            committed.append("second")

        with rig.sync_sessions.begin() as other:
            say(other, "b", "another key")
        thread = threading.Thread(target=follow)
        thread.start()
        eventually_blocking(lambda: _waiting(rig) == 1, what="the second writer waits for the first")
        first.commit()
        thread.join(10)
    assert committed == ["second"]
    assert [key for key, _ in rig.written() if key == "a"] == ["a", "a"]
    assert [said for key, said in rig.written() if key == "a"] == ["first", "second"]
    rig.sync_engine.dispose()


def _waiting(rig: Rig) -> int:
    with rig.sync_engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM pg_locks WHERE NOT granted")).scalar_one())


def _row(key: str, said: str) -> dict[str, object]:
    return {
        "event_id": f"{key}-{said}",
        "topic": "orders",
        "key": key,
        "payload": StringValue(value=said).SerializeToString(),
        "type_name": "google.protobuf.StringValue",
        "content_type": "application/protobuf",
        "headers": {},
        "create_time": datetime.now(UTC),
    }
