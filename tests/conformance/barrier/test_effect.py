"""An effect outside the database: once per key at a provider that knows keys, however often and in which order calls
come; on SQLite and PostgreSQL, with handlers on the loop and in threads.
"""

from __future__ import annotations

import grpc
import pytest

from amends import Rejected, TryLater
from amends.barrier import EffectState
from shop.payments.v1.payments_pb2 import AuthorizeResponse, VoidResponse
from tests.conformance.barrier.effects import Rig

MADE, VOIDED = AuthorizeResponse(authorization_id="auth-1"), VoidResponse()
NO = grpc.StatusCode.FAILED_PRECONDITION


def died() -> Exception:
    """What a handler raises of which nothing is known."""
    return RuntimeError("the process died here")


def declined() -> Rejected:
    """What the provider says no with."""
    return Rejected("card declined", reason="CARD_DECLINED")


@pytest.fixture(params=["sqlite-loop", "sqlite-threads", "postgresql-loop"])
def rig(request: pytest.FixtureRequest) -> Rig:
    """A database with the barrier's tables, and handlers of each kind."""
    name, _, handlers = request.param.partition("-")
    url: str = request.getfixturevalue("sqlite_url" if name == "sqlite" else "empty_postgres")
    return Rig(url, threaded=handlers == "threads")


async def test_a_known_key_is_answered_from_its_row(rig: Rig) -> None:
    """S2: the provider is asked once, the answer is the same, and a reason to abort is repeated with it."""
    rig.provider.abort_reason = "fraud suspected"
    async with rig.serving() as caller:
        first, again = await caller.act(), await caller.act(amends_attempt="2")
        found = await caller.look_up()
    assert [ended.response for ended in (first, again, found)] == [MADE] * 3
    assert {ended.trailers["amends-abort-bin"] for ended in (first, again, found)} == {b"fraud suspected"}
    (told,) = rig.provider.told
    assert (told.key, told.key_uuid, told.started_before, told.action) == (
        caller.action_key,
        caller.action_key_uuid,
        False,
        None,
    )
    assert rig.states() == {"action": "done"}


async def test_an_attempt_that_nobody_knows_the_end_of_is_repeated_with_the_same_key(rig: Rig) -> None:
    """S2: the body runs again, and is told that it ran before; the provider does its part once."""
    rig.provider.after = [died()]
    async with rig.serving() as caller:
        assert (await caller.act()).code is grpc.StatusCode.UNKNOWN
        assert rig.states() == {"action": "started"}
        assert (await caller.act(amends_attempt="2")).response == MADE
    assert [effect.started_before for effect in rig.provider.told] == [False, True]
    assert len({effect.key_uuid for effect in rig.provider.told}) == 1
    assert rig.provider.made == {caller.action_key_uuid: "auth-1"}
    assert rig.states() == {"action": "done"}


@pytest.mark.parametrize("kind", ["compensatable", "pivot"])
async def test_a_refusal_is_recorded_and_repeated_sealed(rig: Rig, kind: str) -> None:
    """S4: a no is for good, whatever the provider would say later."""
    rig.provider.before = [declined()]
    async with rig.serving(kind=kind) as caller:
        ended = [await caller.act(), await caller.act(amends_attempt="2")]
        assert [(each.code, each.sealed, each.text) for each in ended] == [(NO, True, "card declined")] * 2
        assert str(await caller.look_up()) == "NOT_FOUND sealed"
        assert (await caller.undo()).response == VOIDED
    assert len(rig.provider.told) == 1
    assert rig.states() == {"action": "rejected", "compensation": "done"}


async def test_a_refusal_with_a_text_that_no_database_holds_is_recorded(rig: Rig) -> None:
    """S4: what the provider says may have any characters in it."""
    rig.provider.before = [Rejected("no customer a\0b\udc80")]
    async with rig.serving() as caller:
        ended = [await caller.act(), await caller.act(amends_attempt="2")]
    assert [str(each) for each in ended] == ["FAILED_PRECONDITION sealed"] * 2
    assert rig.states() == {"action": "rejected"}


async def test_a_refusal_after_an_attempt_that_nobody_knows_the_end_of_proves_nothing(rig: Rig) -> None:
    """S4: the earlier attempt may have had its effect, whatever a check of the handler's own says by now; so the
    refusal is not sealed, and the compensation still asks the provider.
    """
    rig.provider.before, rig.provider.after = [None, Rejected("the customer is blocked")], [died()]
    async with rig.serving() as caller:
        await caller.act()
        assert str(await caller.act(amends_attempt="2")) == "FAILED_PRECONDITION"
        assert rig.states() == {"action": "started"}
        assert (await caller.undo()).response == VOIDED
    assert rig.provider.undone == set(rig.provider.made)


async def test_the_providers_own_refusal_is_for_good(rig: Rig) -> None:
    """S4: what the provider says of the key itself also proves what became of earlier attempts."""
    rig.provider.before = [died(), Rejected("card declined", sealed=True)]
    async with rig.serving() as caller:
        await caller.act()
        ended = [str(await caller.act(amends_attempt=attempt)) for attempt in ("2", "3")]
    assert ended == ["FAILED_PRECONDITION sealed"] * 2
    assert len(rig.provider.told) == 2


@pytest.mark.parametrize("kind", ["retriable", "read_only"])
async def test_a_refusal_of_what_can_not_be_refused_is_no_last_word(rig: Rig, kind: str) -> None:
    """S6: behind the pivot a no is repeated until it is a yes; nothing is sealed, whatever the handler says."""
    rig.provider.before = [Rejected("not today", sealed=True)]
    async with rig.serving(kind=kind) as caller:
        assert str(await caller.act()) == "FAILED_PRECONDITION"
        assert (await caller.act(amends_attempt="2")).response == MADE


async def test_not_now_leaves_it_begun(rig: Rig) -> None:
    """S2: `TryLater` says that this attempt did nothing; the next one runs the body."""
    rig.provider.before = [TryLater("busy")]
    async with rig.serving() as caller:
        ended = await caller.act()
        assert (ended.code, ended.trailers["amends-executed"]) == (grpc.StatusCode.UNAVAILABLE, "no")
        assert (await caller.act(amends_attempt="2")).response == MADE


async def test_another_request_under_a_key_is_not_carried_out(rig: Rig) -> None:
    """S2: also after a restart, and while the first one is only begun."""
    rig.provider.after = [died()]
    async with rig.serving() as caller:
        await caller.act()
    async with rig.serving() as caller:
        assert (await caller.act("bob")).code is grpc.StatusCode.ABORTED
    assert len(rig.provider.told) == 1


async def test_undoing_what_never_began_leaves_a_mark(rig: Rig) -> None:
    """S4, F04: both compensations succeed without their body, and the action that comes after them is refused."""
    async with rig.serving() as caller:
        assert [(await caller.undo()).response for _ in range(2)] == [VOIDED] * 2
        assert str(await caller.act()) == "FAILED_PRECONDITION sealed"
    assert rig.provider.told == []
    assert rig.states() == {"action": "null", "compensation": "done"}


async def test_undoing_what_is_done(rig: Rig) -> None:
    """S4: the compensation has the action's response, runs once, and a late copy of the action is refused."""
    async with rig.serving() as caller:
        await caller.act()
        assert [(await caller.undo()).response for _ in range(2)] == [VOIDED] * 2
        assert str(await caller.act(amends_attempt="2")) == "FAILED_PRECONDITION sealed"
        assert (await caller.look_up()).response == MADE
    _, told = rig.provider.told
    assert (told.action, told.action_response, told.action_key) == (EffectState.DONE, MADE, caller.action_key)
    assert rig.provider.undone == {caller.action_key_uuid}
    assert rig.states() == {"action": "undone", "compensation": "done"}


async def test_undoing_what_was_begun(rig: Rig) -> None:
    """S4: nobody told what became of the action, so the compensation must ask the provider, by the action's key."""
    rig.provider.after = [died()]
    async with rig.serving() as caller:
        await caller.act()
        assert (await caller.undo()).response == VOIDED
        assert str(await caller.act(amends_attempt="2")) == "FAILED_PRECONDITION sealed"
        assert (await caller.look_up()).code is grpc.StatusCode.ABORTED
    _, told = rig.provider.told
    assert (told.action, told.action_response, told.action_key_uuid) == (
        EffectState.STARTED,
        None,
        caller.action_key_uuid,
    )
    assert rig.states() == {"action": "undone", "compensation": "done"}


@pytest.mark.parametrize("known", [EffectState.STARTED, EffectState.DONE])
async def test_a_compensation_is_repeated_until_it_is_done(rig: Rig, known: EffectState) -> None:
    """S4: it learns the same of the action each time; its refusals are no last word."""
    async with rig.serving() as caller:
        rig.provider.after = [died() if known is EffectState.STARTED else None, died()]
        await caller.act()
        rig.provider.before = [None, Rejected("the provider is closed on Sundays")]
        ended = [str(await caller.undo(amends_attempt=str(attempt))) for attempt in (1, 2, 3)]
    assert ended == ["UNKNOWN", "FAILED_PRECONDITION", "OK"]
    assert [effect.action for effect in rig.provider.told[1:]] == [known] * 3
    assert [effect.started_before for effect in rig.provider.told[1:]] == [False, True, True]
    assert [effect.action_response is None for effect in rig.provider.told[1:]] == [known is EffectState.STARTED] * 3


async def test_undoing_what_another_participant_did(rig: Rig) -> None:
    """S4: nothing is known of the action here, so the body runs, once per compensation key."""
    async with rig.serving() as caller:
        assert [(await caller.undo(target="other")).response for _ in range(2)] == [VOIDED] * 2
    (told,) = rig.provider.told
    assert told.action is EffectState.STARTED
    assert rig.states() == {"compensation": "done"}


async def test_a_lookup_of_what_never_began_seals_it(rig: Rig) -> None:
    """S4: it never will; the body of neither runs."""
    async with rig.serving() as caller:
        assert str(await caller.look_up()) == "NOT_FOUND sealed"
        assert str(await caller.act()) == "FAILED_PRECONDITION sealed"
    assert rig.provider.told == []


async def test_a_lookup_of_what_was_begun_asks_the_provider(rig: Rig) -> None:
    """S4: a yes is written down; a no says "not yet", unless the handler promises that it never will be."""
    rig.provider.before, rig.provider.after = [died()], []
    async with rig.serving() as caller:
        await caller.act()
        assert str(await caller.look_up()) == "NOT_FOUND"
        assert rig.states() == {"action": "started"}
        rig.provider.after = [died()]
        await caller.act(amends_attempt="2")
        assert (await caller.look_up(amends_attempt="2")).response == MADE
        assert rig.states() == {"action": "done"}
        assert (await caller.act(amends_attempt="3")).response == MADE
    assert [effect.action for effect in rig.provider.told] == [None, EffectState.STARTED, None, EffectState.STARTED]


async def test_a_lookup_that_promises_never(rig: Rig) -> None:
    """S4: the promise is written down, so the action is refused from then on."""
    never = Rejected("sealed at the provider", code=grpc.StatusCode.NOT_FOUND, sealed=True)
    rig.provider.before = [died(), never]
    async with rig.serving() as caller:
        await caller.act()
        assert str(await caller.look_up()) == "NOT_FOUND sealed"
        assert str(await caller.act(amends_attempt="2")) == "FAILED_PRECONDITION sealed"
    assert rig.states() == {"action": "null"}


async def test_a_lookup_of_a_retriable_step_never_seals(rig: Rig) -> None:
    """S6: what can't be refused is not sealed, neither before it began nor on its handler's word."""
    rig.provider.before = [died(), Rejected("not there", code=grpc.StatusCode.NOT_FOUND, sealed=True)]
    async with rig.serving(kind="retriable") as caller:
        assert str(await caller.look_up()) == "NOT_FOUND"
        await caller.act()
        assert str(await caller.look_up(amends_attempt="2")) == "NOT_FOUND"
        assert (await caller.act(amends_attempt="2")).response == MADE


async def test_too_old_to_know(rig: Rig) -> None:
    """S4, V12: of a step older than the horizon nothing is claimed, and no body runs."""
    await rig.purge()
    async with rig.serving() as caller:
        old = {"amends_step_time": "2020-01-01T00:00:00Z"}
        ended = [await caller.act(**old), await caller.undo(**old), await caller.look_up(**old)]
        assert {each.code for each in ended} == {grpc.StatusCode.ABORTED}
    assert rig.provider.told == []
    assert rig.states() == {}
