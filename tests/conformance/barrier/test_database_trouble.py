"""A database that is gone, not ready, or loses the answer to a commit."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import NoReturn

import grpc
import pytest
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.orm import Session

from amends import Rejected
from tests.conformance.barrier.stage import Held, Rig, Stage, Step, at_once, rig_at, staged, write_effect
from timeline.v1 import timeline_pb2 as pb

OK, ABORTED, UNKNOWN = grpc.StatusCode.OK, grpc.StatusCode.ABORTED, grpc.StatusCode.UNKNOWN
STEP = Step(saga_id="s-1")


class LostError(Exception):
    """The connection broke in a commit."""


async def test_a_commit_whose_answer_is_lost(stage: Stage) -> None:
    """S2: nobody knows, so the answer is unknown; the repetition gets the original response."""

    def body(session: Session) -> pb.DoResponse:
        event.listen(session, "after_commit", lose)
        return write_effect(session)

    stage.handlers.do = body
    assert (await stage.do(STEP)).code is UNKNOWN
    assert stage.rig.effects() == ["s-1"]
    assert (await stage.do(STEP)).code is OK
    assert stage.rig.effects() == ["s-1"]


async def test_a_commit_that_does_not_arrive(stage: Stage) -> None:
    """S2: the same answer, but nothing became true; so the repetition does the work."""

    def body(session: Session) -> pb.DoResponse:
        event.listen(session.get_bind(), "commit", lose, once=True)
        return write_effect(session)

    stage.handlers.do = body
    assert (await stage.do(STEP)).code is UNKNOWN
    assert (stage.rig.effects(), stage.rig.rows()) == ([], {})
    stage.handlers.do = write_effect
    assert (await stage.do(STEP)).code is OK
    assert stage.rig.effects() == ["s-1"]


async def test_a_reader_in_the_way_of_a_commit(sqlite_url: str) -> None:
    """S2: SQLite leaves the transaction open then, whose row must not be the next call's answer."""
    async with rig_at(sqlite_url, plain=True, connect_args={"timeout": 0.05}) as rig, staged(rig) as stage:
        with closing(sqlite3.connect(rig.engine.url.database or "", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM effect").fetchall()
            assert (await stage.do(STEP)).code is UNKNOWN
        assert (await stage.do(STEP)).code is OK
        assert rig.effects() == ["s-1"]


async def test_a_refusal_that_could_not_be_kept_is_unknown(stage: Stage) -> None:
    """S4: an unsealed no would let a copy run that is on its way; the next attempt is refused for good."""

    def refuse(session: Session) -> pb.DoResponse:
        raise Rejected("too much")

    stage.handlers.do = refuse
    with lost_commits(stage.rig.engine):
        assert (await stage.do(STEP)).code is UNKNOWN
    assert stage.rig.rows() == {}
    assert (await stage.do(STEP)).sealed


@pytest.mark.parametrize("call", ["undo", "find"])
async def test_a_mark_that_could_not_be_left_is_unknown(stage: Stage, call: str) -> None:
    """S4, F04: what only a durable mark makes true is not said before it is durable."""
    calls = {"undo": stage.undo, "find": stage.find}
    with lost_commits(stage.rig.engine):
        lost = await calls[call](STEP)
    assert (lost.code, lost.sealed) == (UNKNOWN, False)
    assert stage.rig.rows() == {}
    assert (await stage.do(STEP)).code is OK


async def test_connections_that_were_closed_meanwhile(stage: Stage) -> None:
    """A database that was started anew: the call says that it did not begin, and the next one succeeds."""
    if not stage.rig.on_postgres:
        pytest.skip("SQLite has no connections that somebody could close")
    assert (await stage.do(STEP)).code is OK
    stage.rig.close_all_connections()
    step = Step(saga_id="s-2")
    first = await stage.do(step)
    assert (first.code, first.trailers["amends-executed"]) == (grpc.StatusCode.UNAVAILABLE, "no")
    assert (await stage.do(step)).code is OK
    assert stage.rig.effects() == ["s-1", "s-2"]


async def test_a_connection_that_is_closed_before_the_commit(stage: Stage) -> None:
    """S2: unknown, and nothing became true; the repetition does the work."""
    if not stage.rig.on_postgres:
        pytest.skip("SQLite has no connections that somebody could close")

    async def close() -> None:
        stage.rig.close_all_connections()

    stage.handlers.pause = close
    assert (await stage.do(STEP)).code is UNKNOWN
    stage.handlers.pause = at_once
    assert stage.rig.effects() == []
    answers = [await stage.do(STEP) for _ in range(2)]  # the first may meet a connection that is gone
    assert answers[1].code is OK
    assert stage.rig.effects() == ["s-1"]


class NotReadyError(Exception):
    """As asyncpg raises it, which SQLAlchemy hands on as it is where it connects: the server is starting up."""

    sqlstate = "57P03"


@pytest.mark.parametrize("problem", [ConnectionRefusedError(111, "Connect call failed"), NotReadyError()], ids=repr)
async def test_a_driver_that_connects_in_its_own_words(rig: Rig, problem: Exception) -> None:
    """L1: an outage parks nothing, whatever the driver calls it: the call says that it did not begin."""

    def connect() -> NoReturn:
        raise problem

    async def connect_on_loop() -> NoReturn:
        raise problem

    url = rig.outside.url.render_as_string(hide_password=False)
    creator = {"creator": connect} if rig.plain else {"async_creator": connect_on_loop}
    async with rig_at(url, plain=rig.plain, **creator) as gone, staged(gone) as stage:
        answers = [await call(STEP) for call in (stage.do, stage.undo, stage.find)]
    assert {answer.code for answer in answers} == {grpc.StatusCode.UNAVAILABLE}
    assert {answer.trailers.get("amends-executed") for answer in answers} == {"no"}


@pytest.mark.parametrize("call", ["do", "undo", "find"])
async def test_missing_tables_say_how_to_make_them(stage: Stage, call: str, caplog: pytest.LogCaptureFixture) -> None:
    """The handler's log says it, and the call proves nothing."""
    with stage.rig.outside.begin() as connection:
        connection.execute(text("ALTER TABLE amends_barrier RENAME TO elsewhere"))
    try:
        answer = await {"do": stage.do, "undo": stage.undo, "find": stage.find}[call](STEP)
    finally:
        with stage.rig.outside.begin() as connection:
            connection.execute(text("ALTER TABLE elsewhere RENAME TO amends_barrier"))
    assert answer.code is UNKNOWN
    assert "barrier.TABLES.create_all(engine)" in caplog.text


async def test_autocommit_is_refused(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """S2: there, nothing could be rolled back."""
    stage.rig.sessions.configure(bind=stage.rig.autocommitting())
    answer = await stage.do(STEP)
    assert answer.code is UNKNOWN
    assert "is in AUTOCOMMIT" in caplog.text
    assert (stage.rig.effects(), stage.rig.rows()) == ([], {})


async def test_a_pool_without_a_free_connection(rig: Rig) -> None:
    """The call did not begin, and says so."""
    url = rig.outside.url.render_as_string(hide_password=False)
    async with (
        rig_at(url, plain=rig.plain, pool_size=1, max_overflow=0, pool_timeout=0.1) as narrow,
        staged(narrow) as stage,
    ):
        held = stage.handlers.pause = Held()
        first = asyncio.create_task(stage.do(STEP))
        await held.reached.wait()
        second = await stage.do(Step(saga_id="s-2"))
        held.go_on.set()
        assert (second.code, second.trailers["amends-executed"]) == (grpc.StatusCode.UNAVAILABLE, "no")
        assert (await first).code is OK
    assert rig.effects() == ["s-1"]


def lose(_: Session | Connection) -> None:
    """Fail."""
    raise LostError


@contextmanager
def lost_commits(engine: Engine) -> Generator[None]:
    """No commit of this engine arrives meanwhile."""
    event.listen(engine, "commit", lose)
    try:
        yield
    finally:
        event.remove(engine, "commit", lose)
