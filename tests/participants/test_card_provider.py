"""The card provider keeps the rules of its idempotency keys, over HTTP too, and what it did survives its death."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shop.cards.client import CardClient, CardRefusedError, CardsUnknownError, Http
from shop.cards.faults import PlantedFault
from shop.cards.provider import Fields, Reply
from tests.participants.cards import BOUND_S, card_rows, held, provider_here, provider_over_http, provider_process


async def authorize(cards: CardClient, key: str, *, minor_units: int = 4_200, reference: str = "order-1") -> str:
    """Ada's money, set aside."""
    return await cards.authorize(
        key=key,
        customer_id="ada",
        minor_units=minor_units,
        currency_code="EUR",
        statement_text="SHOP",
        reference=reference,
    )


def states(data: Path) -> list[tuple[object, ...]]:
    """The state of each authorisation."""
    return [tuple(row) for row in card_rows(data, "SELECT state FROM authorization ORDER BY rowid")]


async def test_money_is_set_aside_taken_and_given_back(tmp_path: Path) -> None:
    """Each step once per key; a repeated one is answered as before and does nothing."""
    with provider_over_http(tmp_path) as wire:
        cards = CardClient(wire)
        made = [await authorize(cards, "k1") for _ in range(2)]
        assert await cards.find("k1") == made[0]
        assert await cards.find("k2") is None
        taken = [await cards.capture(key="k2", authorization_id=made[0], reference="order-1") for _ in range(2)]
        given = [await cards.refund(key="k3", charge_id=taken[0], reference="order-1") for _ in range(2)]
        counts = "SELECT (SELECT count(*) FROM authorization), (SELECT count(*) FROM charge), count(*) FROM refund"
        assert card_rows(tmp_path, counts) == [(1, 1, 1)]
    assert [len(set(ids)) for ids in (made, taken, given)] == [1, 1, 1]
    assert states(tmp_path) == [("captured",)]


async def test_a_key_stands_for_one_request(tmp_path: Path) -> None:
    """Another request under it is no refusal that proves anything, and does nothing."""
    with provider_here(tmp_path) as wire:
        cards = CardClient(wire)
        await authorize(cards, "k1")
        with pytest.raises(CardsUnknownError, match="key_reused"):
            await authorize(cards, "k1", minor_units=9_900)
    assert card_rows(tmp_path, "SELECT minor_units FROM authorization") == [(4_200,)]


@pytest.mark.parametrize("minor_units", [0, -4_200])
async def test_nobody_is_paid_by_an_order(tmp_path: Path, minor_units: int) -> None:
    """Less than nothing set aside and taken would be money for the customer: no, and for good."""
    with provider_here(tmp_path) as wire, pytest.raises(CardRefusedError, match="is no amount"):
        await authorize(CardClient(wire), "k1", minor_units=minor_units)
    assert states(tmp_path) == []


async def test_a_card_is_declined_above_its_limit_and_the_no_is_repeated(tmp_path: Path) -> None:
    """A refusal under a key stays one: nothing is made of it later."""
    with provider_here(tmp_path) as wire:
        cards = CardClient(wire)
        for _ in range(2):
            with pytest.raises(CardRefusedError) as no:
                await authorize(cards, "k1", minor_units=100_001)
            assert no.value.code == "card_declined"
    assert states(tmp_path) == []


async def test_voiding_gives_back_what_stands(tmp_path: Path) -> None:
    """By the key it was asked for with, however often; what was voided can't be taken."""
    with provider_here(tmp_path) as wire:
        cards = CardClient(wire)
        made = await authorize(cards, "k1")
        for key in ("v1", "v1", "v2"):
            assert await cards.void(key=key, authorization_key="k1", reference="order-1") == made
        with pytest.raises(CardRefusedError) as no:
            await cards.capture(key="c1", authorization_id=made, reference="order-1")
        assert no.value.code == "not_authorized"
    assert states(tmp_path) == [("voided",)]


async def test_what_was_taken_is_refunded_not_voided(tmp_path: Path) -> None:
    """The money is the merchant's by then."""
    with provider_here(tmp_path) as wire:
        cards = CardClient(wire)
        made = await authorize(cards, "k1")
        await cards.capture(key="c1", authorization_id=made, reference="order-1")
        with pytest.raises(CardRefusedError) as no:
            await cards.void(key="v1", authorization_key="k1", reference="order-1")
        assert no.value.code == "already_captured"
    assert states(tmp_path) == [("captured",)]


async def test_voiding_a_key_never_seen_seals_it(tmp_path: Path) -> None:
    """A request that was held up on its way does not arrive after its own undoing."""
    with provider_here(tmp_path) as wire:
        cards = CardClient(wire)
        assert await cards.void(key="v1", authorization_key="k1", reference="order-1") == ""
        for minor_units in (4_200, 9_900):
            with pytest.raises(CardRefusedError) as no:
                await authorize(cards, "k1", minor_units=minor_units)
            assert no.value.code == "key_sealed"
    assert states(tmp_path) == []


@pytest.mark.parametrize(
    ("path", "status"),
    [("authorizations/k1", 404), ("nonsense", 404)],
)
async def test_what_is_not_there_is_not_found(tmp_path: Path, path: str, status: int) -> None:
    """With a code and a sentence."""
    with provider_over_http(tmp_path) as wire:
        reply = await wire.get(path)
    assert (reply.status, set(reply.fields)) == (status, {"code", "message"})


@pytest.mark.parametrize(
    ("what", "fields", "key", "code"),
    [
        ("authorizations", {"minor_units": "many"}, "k1", "bad_request"),
        ("authorizations", {"minor_units": 1, "customer_id": 7}, "k1", "bad_request"),
        ("authorizations", {"minor_units": 1}, "", "key_missing"),
        ("voids", {}, "k1", "bad_request"),
        ("captures", {"authorization_id": "auth-of-nobody"}, "k1", "not_authorized"),
        ("refunds", {"charge_id": "charge-of-nobody"}, "k1", "not_charged"),
        ("nonsense", {}, "k1", "no_such_thing"),
    ],
)
async def test_a_bad_request_is_explained(
    tmp_path: Path, what: str, fields: dict[str, object], key: str, code: str
) -> None:
    """And leaves nothing."""
    with provider_over_http(tmp_path) as wire:
        reply = await wire.post(what, fields, key=key)
    assert reply.fields["code"] == code
    assert states(tmp_path) == []


@pytest.mark.crash
@pytest.mark.parametrize(("moment", "made"), [("before", 0), ("after", 1)])
async def test_it_dies_and_knows_afterwards_what_it_did(tmp_path: Path, moment: str, made: int) -> None:
    """S2: whoever asks again with the same key gets one authorisation in all."""
    fault = f"authorizations:customer_id=ada:{moment}:die"
    process, again = provider_process(tmp_path, fault), provider_process(tmp_path)
    try:
        await process.start()
        with pytest.raises(CardsUnknownError):
            await authorize(CardClient(Http(process.address)), "k1")
        await process.ended()
        assert len(states(tmp_path)) == made
        await again.start()
        await authorize(CardClient(Http(again.address)), "k1")
        assert await again.stop() == 0
    finally:
        await process.kill()
        await again.kill()
    assert states(tmp_path) == [("standing",)]


async def test_a_held_request_goes_on_when_it_is_let_go(tmp_path: Path) -> None:
    """Others are served meanwhile; a caller that went away changes nothing."""
    point = "authorizations:reference=order-1:before"
    with provider_over_http(tmp_path, f"{point}:hold") as wire:
        cards = CardClient(wire)
        waiting = asyncio.create_task(authorize(cards, "k1"))
        async with asyncio.timeout(BOUND_S):
            await held(wire, point)
            await authorize(cards, "k2", reference="order-2")
            assert len(states(tmp_path)) == 1
            await wire.post("let-go", {}, key="")
            await waiting
    assert len(states(tmp_path)) == 2


class Gateway:
    """Stands between the shop and the provider, and answers for it."""

    def __init__(self, status: int) -> None:
        self._reply = Reply(status=status, fields={"error": "by order of the gateway"})

    async def get(self, path: str) -> Reply:
        return self._reply

    async def post(self, what: str, fields: Fields, *, key: str) -> Reply:
        return self._reply


@pytest.mark.parametrize("status", [402, 404, 409, 410])
async def test_what_a_gateway_says_is_not_the_providers_word(status: int) -> None:
    """S4: a sealed no is made of a refusal, and it must not be made of one by somebody who knows nothing of the key."""
    cards = CardClient(Gateway(status))
    with pytest.raises(CardsUnknownError):
        await authorize(cards, "k1")
    with pytest.raises(CardsUnknownError):
        await cards.find("k1")


@pytest.mark.parametrize("text", ["", "voids", "voids:a=b:during:die", "voids:a=b:before:sleep"])
def test_a_wrong_fault_is_explained(text: str) -> None:
    """The sentence shows the shape."""
    with pytest.raises(ValueError, match=r"WHAT:FIELD=VALUE"):
        PlantedFault.parse(text)
