"""Lists and counts of sagas."""

from __future__ import annotations

from dataclasses import replace

from amends_coordinator.core.ids import Instant, SagaId
from amends_coordinator.core.states import SagaState
from amends_coordinator.ports.ledger import Ledger
from amends_coordinator.ports.listing import SagaFilter
from tests.conformance.ledger.sagas import after, full, new, saga, stored, write

ALL = SagaFilter()


async def test_nothing_is_listed_where_nothing_is(ledger: Ledger) -> None:
    """An empty ledger has an empty first and last page, and counts nothing."""
    page = await ledger.list_sagas(ALL, limit=10, before=None)
    assert (page.sagas, page.next) == ((), None)
    assert await ledger.count_by_state() == {}
    assert await ledger.load(SagaId("order-1")) is None


async def test_pages_go_from_the_newest_to_the_oldest(ledger: Ledger) -> None:
    """Every saga is on exactly one page, also where several began in the same microsecond."""
    for number in range(11):
        await ledger.start(new(saga(f"order-{number:02d}", time=after(number // 3))))
    found: list[str] = []
    before: tuple[Instant, SagaId] | None = None
    pages = 0
    while pages == 0 or before is not None:
        page = await ledger.list_sagas(ALL, limit=4, before=before)
        found += [each.saga.id for each in page.sagas]
        before, pages = page.next, pages + 1
    assert pages == 3
    assert found == [f"order-{number:02d}" for number in (10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)]


async def test_the_last_page_is_known_as_the_last(ledger: Ledger) -> None:
    """No empty page follows one that happens to be full."""
    for number in range(4):
        await ledger.start(new(saga(f"order-{number}", time=after(number))))
    assert (await ledger.list_sagas(ALL, limit=4, before=None)).next is None


async def test_states_choose_and_are_counted(ledger: Ledger) -> None:
    """A list of several states is still in one order, and counts agree with it."""
    states = (SagaState.RUNNING, SagaState.COMMITTED, SagaState.COMPENSATED)
    for number in range(9):
        value = saga(f"order-{number}", time=after(number))
        await ledger.start(new(value))
        await ledger.append(write(replace(value, state=states[number % 3]), 1))
    chosen = SagaFilter(states=frozenset({SagaState.RUNNING, SagaState.COMMITTED}))
    page = await ledger.list_sagas(chosen, limit=4, before=None)
    assert [each.saga.id for each in page.sagas] == ["order-7", "order-6", "order-4", "order-3"]
    page = await ledger.list_sagas(chosen, limit=4, before=page.next)
    assert [each.saga.id for each in page.sagas] == ["order-1", "order-0"]
    assert page.next is None
    assert await ledger.count_by_state() == dict.fromkeys(states, 3)


async def test_a_listed_saga_has_all_but_its_intents(ledger: Ledger) -> None:
    """A list says truthfully whether a person is needed."""
    value, everything = saga("order-1"), full("order-1")
    begun = replace(
        value, labels=everything.labels, traceparent=everything.traceparent, tracestate=everything.tracestate
    )
    await ledger.start(new(begun))
    await ledger.append(replace(write(everything, 1), dead_letters=everything.dead_letters))
    page = await ledger.list_sagas(ALL, limit=4, before=None)
    assert page.sagas == (stored(replace(everything, intents=()), 2),)
    assert page.sagas[0].saga.attention_required
