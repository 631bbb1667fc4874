"""Dead letters: found by id, listed oldest first with what an operator sorts by, counted by kind."""

from __future__ import annotations

from dataclasses import replace

from amends_coordinator.core.ids import DeadLetterId, SagaId
from amends_coordinator.core.states import DeadLetterReason, SagaState
from amends_coordinator.ports.ledger import Ledger
from amends_coordinator.ports.repairs import LetterFilter
from tests.conformance.ledger.rigs import Rig, opened
from tests.conformance.ledger.sagas import after, new, saga
from tests.conformance.ledger.verbs import entry, letter, parked, put, retried, write

METHOD = "shop.v1.ShopService/Do"
NOBODY: frozenset[SagaId] = frozenset()


async def test_a_dead_letter_is_found_by_its_id(ledger: Ledger) -> None:
    """With its saga, definition, method and last status code."""
    await put(ledger, parked("order-1"))
    found = await ledger.load_dead_letter(DeadLetterId("order-1/reserve/action/1"))
    assert found is not None
    assert (found.saga_id, found.definition_name, found.letter) == ("order-1", "order", letter("order-1"))
    assert (found.method, found.last_code) == (METHOD, "UNAVAILABLE")
    assert await ledger.load_dead_letter(DeadLetterId("order-1/reserve/action/2")) is None


async def test_open_ones_are_listed_oldest_first(ledger: Ledger) -> None:
    """Page by page, without those that are closed; all of them where that is asked for."""
    for number in (3, 1, 2):
        await put(ledger, parked(f"order-{number}", letter(f"order-{number}", time=after(number // 2))))
    settled = await put(ledger, parked("order-9"))
    await ledger.append_verb(write(retried(settled, time=after(9)), 2), entry("order-9"))
    found: list[str] = []
    page = await ledger.list_dead_letters(LetterFilter(), limit=2, after=None)
    while True:
        found += [each.saga_id for each in page.letters]
        if page.next is None:
            break
        page = await ledger.list_dead_letters(LetterFilter(), limit=2, after=page.next)
    assert found == ["order-1", "order-2", "order-3"]
    everything = await ledger.list_dead_letters(LetterFilter(closed_too=True), limit=9, after=None)
    assert {each.saga_id for each in everything.letters} == {"order-1", "order-2", "order-3", "order-9"}
    assert (await ledger.load_dead_letter(DeadLetterId("order-9/reserve/action/1"))) is not None


async def test_they_are_filtered_and_grouped(ledger: Ledger) -> None:
    """412 of one method with one code are one line for a person."""
    for number in range(3):
        await put(ledger, parked(f"order-{number}", letter(f"order-{number}", time=after(number))))
    refused = letter("order-7", reason=DeadLetterReason.REFUSED, time=after(1))
    await put(ledger, parked("order-7", refused, code="NOT_FOUND"))
    groups = await ledger.group_dead_letters(LetterFilter())
    assert [(each.method, each.reason, each.last_code, each.count, each.oldest_time) for each in groups] == [
        (METHOD, DeadLetterReason.BUDGET_SPENT, "UNAVAILABLE", 3, after(0)),
        (METHOD, DeadLetterReason.REFUSED, "NOT_FOUND", 1, after(1)),
    ]
    for wanted, expected in (
        (LetterFilter(saga_id=SagaId("order-1")), {"order-1"}),
        (LetterFilter(reasons=frozenset({DeadLetterReason.REFUSED})), {"order-7"}),
        (LetterFilter(method=METHOD), {"order-0", "order-1", "order-2", "order-7"}),
        (LetterFilter(method="shop.v1.ShopService/Other"), set[str]()),
    ):
        page = await ledger.list_dead_letters(wanted, limit=9, after=None)
        assert {each.saga_id for each in page.letters} == expected
        assert sum(each.count for each in await ledger.group_dead_letters(wanted)) == len(expected)


async def test_one_is_opened_without_a_decision(ledger: Ledger) -> None:
    """L1: where no decision can be made the saga has an open dead letter all the same, and only one for each reason."""
    await ledger.start(new(saga("order-1")))
    failed = DeadLetterReason.DRIVER_FAILED
    opened_id = await ledger.put_dead_letter(SagaId("order-1"), reason=failed, last_error="boom\0", now=after(3))
    assert opened_id == "order-1/-/-/1"
    assert await ledger.put_dead_letter(SagaId("order-1"), reason=failed, last_error="boom", now=after(4)) is None
    assert await ledger.put_dead_letter(SagaId("order-2"), reason=failed, last_error="boom", now=after(4)) is None
    found = await ledger.load(SagaId("order-1"))
    assert found is not None
    assert (found.version, found.saga.attention_required, found.saga.state) == (2, True, SagaState.RUNNING)
    assert [(each.id, each.reason, each.step) for each in found.saga.dead_letters] == [(opened_id, failed, None)]
    closed = replace(found.saga, dead_letters=tuple(replace(x, closed_time=after(5)) for x in found.saga.dead_letters))
    await ledger.append_verb(write(closed, 2), entry("order-1"))
    again = await ledger.put_dead_letter(SagaId("order-1"), reason=failed, last_error="boom", now=after(6))
    assert again == "order-1/-/-/2"


async def test_a_saga_that_cant_be_read_gets_one(rig: Rig) -> None:
    """L1, L2: nobody can drive it, so a person is told, once; the list shows it although the saga can't be loaded."""
    ledger = await opened(rig)
    await ledger.start(new(saga("order-1")))
    await ledger.start(new(saga("order-2")))
    rig.make_unreadable("order-1")
    claimed = await ledger.claim(now=after(9), limit=5, held=NOBODY)
    assert [found.saga.id for found in claimed] == ["order-2"]
    await ledger.claim(now=after(70_000_000), limit=5, held=frozenset({SagaId("order-2")}))
    page = await ledger.list_dead_letters(LetterFilter(), limit=9, after=None)
    assert [(each.saga_id, each.letter.reason, each.method, each.last_code) for each in page.letters] == [
        ("order-1", DeadLetterReason.UNREADABLE, "", "")
    ]
    (group,) = await ledger.group_dead_letters(LetterFilter())
    assert (group.method, group.count) == ("", 1)
    await ledger.close()
