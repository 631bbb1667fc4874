"""What goes wrong around an effect's block: it can't be swallowed, and the text says which line to change."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from amends import Rejected, TryLater, barrier
from amends.barrier import BarrierUseError, EffectState
from shop.payments.v1.payments_pb2 import (
    AuthorizeRequest,
    AuthorizeResponse,
    FindAuthorizationRequest,
    VoidRequest,
    VoidResponse,
)
from tests.conformance.barrier.effects import AsyncPayments, Context, Rig, with_driver

MADE = AuthorizeResponse(authorization_id="auth-1")

Sessions = async_sessionmaker[Any]  # Any: any kind of session
Body = Callable[[Sessions], Awaitable[AuthorizeResponse]]


@pytest.fixture
def rig(sqlite_url: str) -> Rig:
    """A database with the barrier's tables, and handlers on the loop."""
    return Rig(sqlite_url, threaded=False)


class Scripted(AsyncPayments):
    """An action that does what a test says."""

    def __init__(self, rig: Rig, sessions: Sessions, body: Body) -> None:
        super().__init__(sessions, rig.provider)
        self._body = body

    async def Authorize(self, request: AuthorizeRequest, context: Context) -> AuthorizeResponse:
        return await self._body(self.sessions)


async def acted(rig: Rig, body: Body) -> str:
    """How an action with this body ends."""
    async with rig.sessions() as sessions:
        assert isinstance(sessions, async_sessionmaker)
        async with rig.serving(Scripted(rig, sessions, body)) as caller:
            return str(await caller.act())


async def test_an_exception_that_was_swallowed(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """S4: nobody knows what became of the effect, and the response is not taken for an answer."""

    async def body(sessions: Sessions) -> AuthorizeResponse:
        try:
            async with barrier.effect(sessions):
                raise RuntimeError("connection reset")
        except RuntimeError:
            return MADE

    assert await acted(rig, body) == "UNKNOWN"
    assert rig.states() == {"action": "started"}
    assert "RuntimeError left the barrier's block" in caplog.text


@pytest.mark.parametrize(
    ("refusal", "ended"), [(Rejected("card declined"), "FAILED_PRECONDITION sealed"), (TryLater("busy"), "UNAVAILABLE")]
)
async def test_a_refusal_that_was_swallowed(rig: Rig, refusal: Rejected | TryLater, ended: str) -> None:
    """S4: it is the answer all the same."""

    async def body(sessions: Sessions) -> AuthorizeResponse:
        try:
            async with barrier.effect(sessions):
                raise refusal
        except BaseException:  # noqa: BLE001 - the mistake that is tried
            return MADE

    assert await acted(rig, body) == ended


async def test_a_known_key_can_not_be_swallowed(rig: Rig) -> None:
    """S2: what was written down is the answer, whatever the handler makes of it."""

    async def body(sessions: Sessions) -> AuthorizeResponse:
        try:
            async with barrier.effect(sessions) as effect:
                return rig.provider.authorize(effect)
        except BaseException:  # noqa: BLE001 - the mistake that is tried
            return AuthorizeResponse(authorization_id="another")

    assert await acted(rig, body) == "OK"
    async with rig.sessions() as sessions:
        assert isinstance(sessions, async_sessionmaker)
        async with rig.serving(Scripted(rig, sessions, body)) as caller:
            assert (await caller.act()).response == MADE


async def test_two_blocks(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """S2: one call has one key, so it is one effect."""

    async def body(sessions: Sessions) -> AuthorizeResponse:
        async with barrier.effect(sessions):
            pass
        async with barrier.effect(sessions):
            return MADE

    assert await acted(rig, body) == "UNKNOWN"
    assert "this call has a barrier already" in caplog.text


async def test_it_could_not_be_entered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """S2: a handler that goes on without its barrier is not believed; the log says what to do."""
    rig = Rig(f"sqlite:///{tmp_path / 'empty.db'}", threaded=False)

    async def body(sessions: Sessions) -> AuthorizeResponse:
        try:
            async with barrier.effect(sessions):
                return MADE
        except BarrierUseError as problem:
            logging.getLogger("test").warning("%s", problem)
            return MADE

    assert await acted(rig, body) == "UNKNOWN"
    assert "TABLES.create_all" in caplog.text
    assert "let its exception pass" in caplog.text


async def test_sessions_of_the_other_kind(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """L2: a plain sessionmaker would block the loop."""

    async def body(sessions: Sessions) -> AuthorizeResponse:
        engine = create_engine(with_driver(rig.url))
        with barrier.effect(sessionmaker(engine)):
            return MADE

    assert await acted(rig, body) == "UNKNOWN"
    assert "give it an async_sessionmaker" in caplog.text


async def test_outside_of_a_handler() -> None:
    """It needs a call, whose end it is."""
    engine = create_async_engine("sqlite+aiosqlite://")
    with pytest.raises(BarrierUseError, match=r"barrier\.effect works only inside the handler"):
        async with barrier.effect(async_sessionmaker(engine)):
            pass
    await engine.dispose()


def mark(session: Session) -> None:
    """Work of the participant's own."""
    session.execute(text("INSERT INTO amends_barrier_horizon VALUES (1, '2001-01-01 00:00:00')"))


def marks(rig: Rig) -> int:
    """How often that work stands."""
    engine = create_engine(with_driver(rig.url))
    with engine.connect() as connection:
        (count,) = connection.execute(text("SELECT count(*) FROM amends_barrier_horizon")).one()
    engine.dispose()
    return int(count)


@pytest.mark.parametrize(("fails", "ended", "written"), [(False, "OK", 1), (True, "FAILED_PRECONDITION sealed", 0)])
async def test_work_that_belongs_to_the_end(rig: Rig, fails: bool, ended: str, written: int) -> None:
    """S2: what is registered with `before_commit` is written with `done`, and only with it."""

    async def body(sessions: Sessions) -> AuthorizeResponse:
        async with barrier.effect(sessions):
            barrier.before_commit(mark)
            if fails:
                raise Rejected("card declined")
            return MADE

    assert await acted(rig, body) == ended
    assert marks(rig) == written


async def test_work_that_belongs_to_the_end_and_fails(rig: Rig) -> None:
    """S4: then the effect stays begun, and the next attempt tells its end."""

    def fail(session: Session) -> None:
        mark(session)
        raise RuntimeError("no")

    async def body(sessions: Sessions) -> AuthorizeResponse:
        async with barrier.effect(sessions) as effect:
            if not effect.started_before:
                barrier.before_commit(fail)
            return MADE

    assert [await acted(rig, body) for _ in range(2)] == ["UNKNOWN", "OK"]
    assert marks(rig) == 0


class Mixed(AsyncPayments):
    """An action in the own database that is undone outside of it."""

    async def Authorize(self, request: AuthorizeRequest, context: Context) -> AuthorizeResponse:
        async with barrier.transaction(self.sessions):
            return MADE

    async def Void(self, request: VoidRequest, context: Context) -> VoidResponse:
        async with barrier.effect(self.sessions) as effect:
            return self.provider.void(effect)

    async def FindAuthorization(self, request: FindAuthorizationRequest, context: Context) -> AuthorizeResponse:
        return await barrier.lookup(self.sessions, AuthorizeResponse)


async def test_a_transaction_that_is_undone_by_an_effect(rig: Rig) -> None:
    """S4: both keep their rows in one table, by the same rules."""
    async with rig.sessions() as sessions:
        assert isinstance(sessions, async_sessionmaker)
        async with rig.serving(Mixed(sessions, rig.provider)) as caller:
            assert (await caller.act()).response == MADE
            assert [str(await caller.undo()) for _ in range(2)] == ["OK"] * 2
            assert str(await caller.act()) == "FAILED_PRECONDITION sealed"
            assert (await caller.look_up()).response == MADE  # it was done, whatever became of it later
    (told,) = rig.provider.told
    assert (told.action, told.action_response) == (EffectState.DONE, MADE)


async def test_an_effect_that_is_undone_by_a_transaction(rig: Rig) -> None:
    """S4: where nobody told what became of it, a transaction can't go on: only an effect can ask the provider."""

    class TheOtherWay(AsyncPayments):
        async def Void(self, request: VoidRequest, context: Context) -> VoidResponse:
            async with barrier.transaction(self.sessions):
                return VoidResponse()

    rig.provider.after = [RuntimeError("the process died here")]
    async with rig.sessions() as sessions:
        assert isinstance(sessions, async_sessionmaker)
        async with rig.serving(TheOtherWay(sessions, rig.provider)) as caller:
            await caller.act()
            undone = await caller.undo()
            assert (undone.code, "use barrier.effect" in undone.text) == (grpc.StatusCode.ABORTED, True)
            assert rig.states() == {"action": "started"}
            await caller.act(amends_attempt="2")
            assert str(await caller.undo(amends_attempt="2")) == "OK"
