"""The payments service over real gRPC, with a card provider: once per key there, honest refusals, and everything can be
undone by the action's key alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import pytest

from hosting.holds import ReplyHold
from shop.cards.client import Http
from shop.demo.books import read_calls
from shop.money.v1.money_pb2 import Money
from shop.payments.service import PAYMENTS, payments_at
from shop.payments.v1.payments_pb2 import (
    AuthorizeRequest,
    AuthorizeResponse,
    CaptureRequest,
    FindAuthorizationRequest,
    VoidRequest,
)
from shop.payments.v1.payments_pb2_grpc import PaymentsServiceStub
from tests.participants.cards import card_rows, held, held_at, provider_here, provider_over_http
from tests.participants.serving import as_step, serving
from tests.waiting import eventually, pause

CALL_TIMEOUT_S = 20.0
AUTHORIZE = AuthorizeRequest(customer_id="ada", amount=Money(currency_code="EUR", minor_units=4_200))


@asynccontextmanager
async def paying(data: Path, *holds: ReplyHold) -> AsyncGenerator[grpc.aio.Channel]:
    """The way to payments, whose provider is in this process."""
    with provider_here(data) as wire:
        async with serving(PAYMENTS, data, holds=holds, service=payments_at(wire)) as channel:
            yield channel


@asynccontextmanager
async def paying_over_http(data: Path, *faults: str) -> AsyncGenerator[tuple[PaymentsServiceStub, Http]]:
    """Payments, whose provider has these faults planted."""
    with provider_over_http(data, *faults) as wire:
        async with serving(PAYMENTS, data, service=payments_at(wire)) as channel:
            yield PaymentsServiceStub(channel), wire


def course(data: Path) -> list[tuple[str, str | None, bool]]:
    """Method, outcome and effect of each call, in the order in which they came."""
    return [(call.method, call.outcome, call.effect_made) for call in read_calls(data, "payments")]


def standing(data: Path) -> list[tuple[object, ...]]:
    """What the provider has of authorisations, and how many charges."""
    asked = "SELECT state, (SELECT count(*) FROM charge) FROM authorization ORDER BY rowid"
    return [tuple(row) for row in card_rows(data, asked)]


async def give_up(call: grpc.aio.UnaryUnaryCall[AuthorizeRequest, AuthorizeResponse], wire: Http, point: str) -> None:
    """Cancel a call once the provider holds it."""
    await held(wire, point)
    call.cancel()
    await asyncio.wait([asyncio.ensure_future(call.code())])


async def test_the_same_key_is_answered_from_memory(tmp_path: Path) -> None:
    """S2: whoever repeats a call with its key gets the first answer, and the provider is asked once."""
    async with paying(tmp_path) as channel:
        payments = PaymentsServiceStub(channel)
        first = await payments.Authorize(AUTHORIZE, metadata=as_step("authorize"), timeout=CALL_TIMEOUT_S)
        again = await payments.Authorize(AUTHORIZE, metadata=as_step("authorize", attempt=2), timeout=CALL_TIMEOUT_S)
    assert first == again
    assert card_rows(tmp_path, "SELECT authorization_id, reference FROM authorization") == [
        (first.authorization_id, "saga-1")
    ]
    assert course(tmp_path) == [("Authorize", "OK", True), ("Authorize", "OK", False)]


async def test_twenty_calls_with_one_key_at_once_are_one_authorisation(tmp_path: Path) -> None:
    """S2: also when they overlap in several processes, because all of them ask the provider with one key."""
    async with AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(paying(tmp_path)) for _ in range(4)]
        calls = (
            PaymentsServiceStub(channels[number % 4]).Authorize(
                AUTHORIZE, metadata=as_step("authorize", attempt=number), timeout=CALL_TIMEOUT_S
            )
            for number in range(1, 21)
        )
        answers = await asyncio.gather(*calls, return_exceptions=True)
    done = [answer for answer in answers if isinstance(answer, AuthorizeResponse)]
    refused = {answer.code() for answer in answers if isinstance(answer, grpc.aio.AioRpcError)}
    assert refused <= {grpc.StatusCode.ABORTED}, "unknown: the database had another writer for too long"
    assert len(done) >= 4
    assert len({answer.authorization_id for answer in done}) == 1
    assert standing(tmp_path) == [("standing", 0)]


async def test_keys_of_two_ledgers_are_two_keys(tmp_path: Path) -> None:
    """S2: staging and production may share a service."""
    async with paying(tmp_path) as channel:
        payments = PaymentsServiceStub(channel)
        for ledger in ("default", "staging"):
            metadata = as_step("authorize", ledger=ledger)
            await payments.Authorize(AUTHORIZE, metadata=metadata, timeout=CALL_TIMEOUT_S)
    assert standing(tmp_path) == [("standing", 0)] * 2


async def test_a_held_reply_comes_too_late_and_the_next_attempt_is_answered_at_once(tmp_path: Path) -> None:
    """S2: the effect of an attempt whose answer was lost is not made again."""
    hold = ReplyHold.parse("Authorize:customer_id=ada:60")
    async with paying(tmp_path, hold) as channel:
        payments = PaymentsServiceStub(channel)
        late = payments.Authorize(AUTHORIZE, metadata=as_step("authorize"), timeout=CALL_TIMEOUT_S)
        await eventually(lambda: bool(standing(tmp_path)), what="the authorisation is made")
        late.cancel()
        await eventually(lambda: course(tmp_path)[0][1] is not None, what="the first call is seen to end")
        again = await payments.Authorize(AUTHORIZE, metadata=as_step("authorize", attempt=2), timeout=CALL_TIMEOUT_S)
    assert card_rows(tmp_path, "SELECT authorization_id FROM authorization") == [(again.authorization_id,)]
    assert course(tmp_path) == [("Authorize", "CANCELLED", True), ("Authorize", "OK", False)]


async def test_a_declined_card_leaves_nothing(tmp_path: Path) -> None:
    """S4: a clear refusal is proof that nothing was done; it is remembered under the key, and sealed."""
    too_much = AuthorizeRequest(customer_id="ada", amount=Money(currency_code="EUR", minor_units=100_001))
    async with paying(tmp_path) as channel:
        for attempt in (1, 2):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await PaymentsServiceStub(channel).Authorize(
                    too_much, metadata=as_step("authorize", attempt=attempt), timeout=CALL_TIMEOUT_S
                )
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert ("amends-sealed", "1") in tuple(refused.value.trailing_metadata())
    assert standing(tmp_path) == []
    assert course(tmp_path) == [("Authorize", "FAILED_PRECONDITION", False)] * 2


async def test_a_compensation_of_nothing_keeps_the_action_from_coming(tmp_path: Path) -> None:
    """S4, F04: it succeeds, twice; the action that comes after it is refused, and the provider was never asked."""
    async with paying(tmp_path) as channel:
        payments = PaymentsServiceStub(channel)
        for attempt in (1, 2):
            metadata = as_step("authorize", direction="compensation", attempt=attempt)
            await payments.Void(VoidRequest(), metadata=metadata, timeout=CALL_TIMEOUT_S)
        with pytest.raises(grpc.aio.AioRpcError) as hanging:
            await payments.Authorize(AUTHORIZE, metadata=as_step("authorize"), timeout=CALL_TIMEOUT_S)
    assert hanging.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert card_rows(tmp_path, "SELECT count(*) FROM answer") == [(0,)]


async def test_void_finds_its_work_by_the_actions_key(tmp_path: Path) -> None:
    """S4: an authorisation whose id never reached anybody can still be undone."""
    async with paying(tmp_path) as channel:
        payments = PaymentsServiceStub(channel)
        await payments.Authorize(AUTHORIZE, metadata=as_step("authorize"), timeout=CALL_TIMEOUT_S)
        void = as_step("authorize", direction="compensation")
        await payments.Void(VoidRequest(), metadata=void, timeout=CALL_TIMEOUT_S)
    assert standing(tmp_path) == [("voided", 0)]


async def test_the_lookup_tells_what_became_of_the_action(tmp_path: Path) -> None:
    """S4: the action's own response; for one that never came NOT_FOUND, sealed, and then it never will."""
    async with paying(tmp_path) as channel:
        payments = PaymentsServiceStub(channel)
        made = await payments.Authorize(AUTHORIZE, metadata=as_step("authorize"), timeout=CALL_TIMEOUT_S)
        lookup, other = (as_step("authorize", direction="lookup", saga_id=f"saga-{number}") for number in (1, 2))
        found = await payments.FindAuthorization(FindAuthorizationRequest(), metadata=lookup, timeout=CALL_TIMEOUT_S)
        with pytest.raises(grpc.aio.AioRpcError) as missing:
            await payments.FindAuthorization(FindAuthorizationRequest(), metadata=other, timeout=CALL_TIMEOUT_S)
    assert found == made
    assert missing.value.code() is grpc.StatusCode.NOT_FOUND
    assert ("amends-sealed", "1") in tuple(missing.value.trailing_metadata())


async def test_the_lookup_asks_the_provider_about_what_was_begun(tmp_path: Path) -> None:
    """S4: nobody told payments what became of it, so the provider's books have the answer."""
    point = "authorizations:customer_id=ada:after"
    async with paying_over_http(tmp_path, f"{point}:hold") as (payments, wire):
        await give_up(payments.Authorize(AUTHORIZE, metadata=as_step("authorize"), timeout=CALL_TIMEOUT_S), wire, point)
        lookup = as_step("authorize", direction="lookup")
        found = await payments.FindAuthorization(FindAuthorizationRequest(), metadata=lookup, timeout=CALL_TIMEOUT_S)
    assert card_rows(tmp_path, "SELECT authorization_id FROM authorization") == [(found.authorization_id,)]


async def test_a_request_that_is_held_on_its_way_does_not_arrive_after_its_undoing(tmp_path: Path) -> None:
    """S4, F03: voiding by the action's key seals it at the provider, so that the late request is refused there."""
    point = "authorizations:customer_id=ada:before"
    async with paying_over_http(tmp_path, f"{point}:hold") as (payments, wire):
        await give_up(payments.Authorize(AUTHORIZE, metadata=as_step("authorize"), timeout=CALL_TIMEOUT_S), wire, point)
        lookup = as_step("authorize", direction="lookup")
        with pytest.raises(grpc.aio.AioRpcError) as not_yet:
            await payments.FindAuthorization(FindAuthorizationRequest(), metadata=lookup, timeout=CALL_TIMEOUT_S)
        void = as_step("authorize", direction="compensation")
        await payments.Void(VoidRequest(), metadata=void, timeout=CALL_TIMEOUT_S)
        await wire.post("let-go", {}, key="")
        while await held_at(wire):
            await pause()
    assert not_yet.value.code() is grpc.StatusCode.NOT_FOUND
    assert "amends-sealed" not in dict(tuple(not_yet.value.trailing_metadata()))
    assert standing(tmp_path) == []


async def test_capture_takes_what_stands_and_nothing_else(tmp_path: Path) -> None:
    """S6: money that was taken is not given back by a void, and nothing is taken twice under a new key."""
    async with paying(tmp_path) as channel:
        payments = PaymentsServiceStub(channel)
        made = await payments.Authorize(AUTHORIZE, metadata=as_step("authorize"), timeout=CALL_TIMEOUT_S)
        capture, void = CaptureRequest(authorization_id=made.authorization_id), VoidRequest()
        await payments.Capture(capture, metadata=as_step("capture", kind="RETRIABLE"), timeout=CALL_TIMEOUT_S)
        other = as_step("capture_again", kind="RETRIABLE")
        with pytest.raises(grpc.aio.AioRpcError) as again:
            await payments.Capture(capture, metadata=other, timeout=CALL_TIMEOUT_S)
        with pytest.raises(grpc.aio.AioRpcError) as too_late:
            await payments.Void(void, metadata=as_step("authorize", direction="compensation"), timeout=CALL_TIMEOUT_S)
    assert {again.value.code(), too_late.value.code()} == {grpc.StatusCode.FAILED_PRECONDITION}
    assert standing(tmp_path) == [("captured", 1)]
