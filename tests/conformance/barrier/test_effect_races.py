"""Effects whose bodies run side by side, in two processes of one participant: nobody waits, and one end counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import grpc
import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import async_sessionmaker

from amends import Rejected, barrier
from amends.barrier import EffectState
from shop.payments.v1.payments_pb2 import AuthorizeRequest, AuthorizeResponse
from tests.conformance.barrier.effects import AsyncPayments, Context, Ended, Rig, with_driver

BOUND_S = 20.0
MADE = AuthorizeResponse(authorization_id="auth-1")

GoOn = Callable[[], Awaitable[Ended]]


@pytest.fixture(params=["sqlite", "postgresql"])
def rig(request: pytest.FixtureRequest) -> Rig:
    """A database with the barrier's tables, and handlers on the loop."""
    url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "empty_postgres")
    return Rig(url, threaded=False)


class HeldPayments(AsyncPayments):
    """An action that waits in its body until it is let go."""

    def __init__(self, rig: Rig, sessions: async_sessionmaker[Any]) -> None:  # Any: any kind of session
        super().__init__(sessions, rig.provider)
        self.inside, self.go_on, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def Authorize(self, request: AuthorizeRequest, context: Context) -> AuthorizeResponse:
        async with barrier.effect(self.sessions) as effect:
            self.inside.set()
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return self.provider.authorize(effect)


@asynccontextmanager
async def acting(rig: Rig) -> AsyncGenerator[GoOn]:
    """A process whose action is in its body as long as the block runs; what is given lets it go on, to its end."""
    async with rig.sessions() as sessions:
        assert isinstance(sessions, async_sessionmaker)
        held = HeldPayments(rig, sessions)
        async with rig.serving(held) as caller:
            action = asyncio.create_task(caller.act())
            async with asyncio.timeout(BOUND_S):
                await held.inside.wait()

            async def go_on() -> Ended:
                held.go_on.set()
                return await action

            yield go_on
            await go_on()


async def test_two_copies_at_once_have_one_answer(rig: Rig) -> None:
    """S2: both ask the provider with one key, which does its part once; who ends last repeats what was written down."""
    async with acting(rig) as go_on, rig.serving() as caller:
        assert (await caller.act()).response == MADE
        rig.provider.made[caller.action_key_uuid] = "auth-2"
        assert (await go_on()).response == MADE
    assert [effect.started_before for effect in rig.provider.told] == [True, False]


async def test_an_action_that_still_runs_when_it_is_undone(rig: Rig) -> None:
    """S4, S5: it is told that it does not have the last word; the compensation's end stands."""
    async with acting(rig) as go_on, rig.serving() as caller:
        assert str(await caller.undo()) == "OK"
        assert str(await go_on()) == "ABORTED"
        assert str(await caller.act()) == "FAILED_PRECONDITION sealed"
    assert rig.states() == {"action": "undone", "compensation": "done"}


async def test_a_refusal_that_comes_when_it_is_undone(rig: Rig) -> None:
    """S4: a no is no last word either; what is recorded stays."""
    async with acting(rig) as go_on, rig.serving() as caller:
        assert str(await caller.undo()) == "OK"
        rig.provider.before = [Rejected("card declined")]
        assert str(await go_on()) == "ABORTED"
    assert rig.states() == {"action": "undone", "compensation": "done"}


async def test_a_refusal_was_recorded_meanwhile(rig: Rig) -> None:
    """S4: the copy that ends later repeats it, whatever it found itself."""
    rig.provider.before = [Rejected("card declined", reason="CARD_DECLINED", sealed=True)]
    async with acting(rig) as go_on, rig.serving() as caller:
        assert str(await caller.act()) == "FAILED_PRECONDITION sealed"
        ended = await go_on()
        assert (str(ended), ended.text) == ("FAILED_PRECONDITION sealed", "card declined")


async def test_a_refusal_when_another_body_has_run_since(rig: Rig) -> None:
    """S4: a slow first attempt refuses by a check of its own, after a second one had its effect and died."""
    rig.provider.after = [RuntimeError("the process died here")]
    async with acting(rig) as go_on, rig.serving() as caller:
        assert str(await caller.act(amends_attempt="2")) == "UNKNOWN"
        rig.provider.before = [Rejected("the customer is blocked")]
        assert str(await go_on()) == "FAILED_PRECONDITION"
    assert rig.states() == {"action": "started"}


async def test_a_refusal_that_comes_when_it_is_done(rig: Rig) -> None:
    """S4: the copy that succeeded first has the last word."""
    async with acting(rig) as go_on, rig.serving() as caller:
        assert (await caller.act()).response == MADE
        rig.provider.before = [Rejected("card declined")]
        assert (await go_on()).response == MADE
    assert rig.states() == {"action": "done"}


async def test_a_lookup_tells_the_end_before_the_action_does(rig: Rig) -> None:
    """S4: what it found at the provider is the answer of both."""
    async with acting(rig) as go_on, rig.serving() as caller:
        rig.provider.made[caller.action_key_uuid] = "auth-1"
        assert (await caller.look_up()).response == MADE
        rig.provider.made[caller.action_key_uuid] = "auth-2"
        assert (await go_on()).response == MADE


async def test_a_lookup_promised_never_while_the_action_ran(rig: Rig) -> None:
    """S4: its author broke the promise, and the action's end is not taken for an answer: nothing is known."""
    async with acting(rig) as go_on, rig.serving() as caller:
        rig.provider.before = [Rejected("sealed", code=grpc.StatusCode.NOT_FOUND, sealed=True)]
        assert str(await caller.look_up()) == "NOT_FOUND sealed"
        assert str(await go_on()) == "ABORTED"
    assert rig.states() == {"action": "null"}


@contextmanager
def changed_when_read(sessions: async_sessionmaker[Any], url: str, state: str) -> Generator[None]:  # Any: any kind
    """Another process changes the action's row to this state as soon as it was read."""
    engine, other = sessions.kw["bind"].sync_engine, create_engine(with_driver(url))
    changes = [f"UPDATE amends_barrier SET state = '{state}', response = '' WHERE direction = 'action'"]

    def change(connection: Any, cursor: Any, statement: str, *others: Any) -> None:  # Any: as in SQLAlchemy's stubs
        if statement.startswith("SELECT") and "amends_barrier" in statement and changes:
            with other.begin() as at_once:
                at_once.execute(text(changes.pop()))

    event.listen(engine, "after_cursor_execute", change)
    yield
    event.remove(engine, "after_cursor_execute", change)
    other.dispose()
    assert not changes


@pytest.mark.parametrize(("direction", "meanwhile"), [("action", "undone"), ("compensation", "done")])
async def test_what_was_read_changes_at_once(empty_postgres: str, direction: str, meanwhile: str) -> None:
    """S4: neither body runs on what is no longer so; the next attempt finds what is."""
    rig = Rig(empty_postgres, threaded=False)
    rig.provider.after = [RuntimeError("the process died here")]
    async with rig.sessions() as sessions:
        assert isinstance(sessions, async_sessionmaker)
        async with rig.serving(rig.servicer(sessions)) as caller:
            await caller.act()
            with changed_when_read(sessions, rig.url, meanwhile):
                ended = await (caller.act(amends_attempt="2") if direction == "action" else caller.undo())
            assert str(ended) == "ABORTED"
            assert rig.states() == {"action": meanwhile}
            assert str(await caller.undo(amends_attempt="2")) == "OK"
    assert [effect.action for effect in rig.provider.told] == [None, EffectState.DONE]


async def test_nothing_is_held_while_the_body_runs(rig: Rig) -> None:
    """L2: others write meanwhile, also to the row of the very key."""
    engine = create_engine(with_driver(rig.url), connect_args={"timeout": 0} if "sqlite" in rig.url else {})
    async with acting(rig):
        with engine.begin() as connection:
            written = connection.execute(
                text("UPDATE amends_barrier SET message = 'seen' WHERE saga = :saga"), {"saga": rig.saga_id}
            )
    engine.dispose()
    assert written.rowcount == 1


async def test_a_caller_that_goes_away_leaves_it_begun(rig: Rig) -> None:
    """S2: the body is cancelled, and the next attempt runs it again with the same key."""
    async with rig.sessions() as sessions:
        assert isinstance(sessions, async_sessionmaker)
        held = HeldPayments(rig, sessions)
        async with rig.serving(held) as caller:
            gone = asyncio.create_task(caller.act())
            async with asyncio.timeout(BOUND_S):
                await held.inside.wait()
            gone.cancel()
            async with asyncio.timeout(BOUND_S):
                await held.cancelled.wait()
            assert rig.states() == {"action": "started"}
            held.go_on.set()
            assert (await caller.act(amends_attempt="2")).response == MADE
    assert [effect.started_before for effect in rig.provider.told] == [True]
