"""Starts: one saga per id, and only the request whose token is stored is the starter."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from amends_coordinator.core.ids import DefinitionVersion, SagaId
from amends_coordinator.ports.ledger import Ledger, Started, WriteRefusedError
from tests.conformance.ledger.sagas import advanced, after, intent, new, saga, stored, write

SAGA = SagaId("order-1")


async def test_a_start_stores_the_saga_with_its_intents(ledger: Ledger) -> None:
    """S1, S11: when a start is answered, the saga and the first intents are durable."""
    value = saga("order-1")
    assert await ledger.start(new(value)) == Started(started=True, stored=stored(value, 1))
    assert await ledger.load(SAGA) == stored(value, 1)


async def test_a_start_without_an_owner(ledger: Ledger) -> None:
    """A saga that nobody drives at once is stored for whoever claims it."""
    value = saga("order-1")
    assert await ledger.start(new(value, owner=None)) == Started(started=True, stored=stored(value, 1, owner=None))


async def test_an_id_that_exists_is_not_started_again(ledger: Ledger) -> None:
    """S9: another request with the id is shown the saga as it is, and changes nothing."""
    value = saga("order-1")
    await ledger.start(new(value))
    changed = advanced(value, "authorize", time=after(1))
    await ledger.append(write(changed, 1))
    other = replace(saga("order-1", time=after(5)), input=b"other", intents=(intent("pay"),))
    assert await ledger.start(new(other, request="request-2")) == Started(started=False, stored=stored(changed, 2))
    assert await ledger.load(SAGA) == stored(changed, 2)


async def test_the_same_request_again_is_still_the_starter(ledger: Ledger) -> None:
    """S9, S11: a start whose answer was lost is answered the same, with the saga as it is by then."""
    value = saga("order-1")
    first = await ledger.start(new(value))
    assert await ledger.start(new(value)) == first
    changed = advanced(value, "authorize", time=after(1))
    await ledger.append(write(changed, 1))
    assert await ledger.start(new(value)) == Started(started=True, stored=stored(changed, 2))


@pytest.mark.timeline
async def test_b01_two_starts_with_one_id_at_once(ledger: Ledger) -> None:
    """B1, S9: of starts with one id that come together one starts; only its intents are stored, whole."""
    one = saga("order-1")
    other = replace(saga("order-1"), input=b"other", intents=(intent("pay"), intent("pray")))
    results = await asyncio.gather(
        ledger.start(new(one)),
        ledger.start(new(other, request="request-2")),
        ledger.start(new(one, request="request-3")),
    )
    assert [result.started for result in results] == [True, False, False]
    assert [result.stored for result in results] == [stored(one, 1)] * 3
    assert await ledger.load(SAGA) == stored(one, 1)


async def test_one_request_twice_at_once(ledger: Ledger) -> None:
    """S9: a request that is repeated before it is answered starts one saga, and both are told so."""
    value = saga("order-1")
    results = tuple(await asyncio.gather(ledger.start(new(value)), ledger.start(new(value))))
    assert results == (Started(started=True, stored=stored(value, 1)),) * 2


async def test_a_start_of_an_unknown_definition_is_refused(ledger: Ledger) -> None:
    """L2: data that the ledger refuses is refused alone; the sagas beside it are started."""
    values = [saga(f"order-{number}") for number in range(16)]
    lost = replace(values[3].plan, version=DefinitionVersion("ffffffffffffffff"))
    values[3] = replace(values[3], plan=lost)
    results = await asyncio.gather(*(ledger.start(new(value)) for value in values), return_exceptions=True)
    assert isinstance(results[3], WriteRefusedError)
    assert [result for result in results if isinstance(result, Started) and result.started] == [
        Started(started=True, stored=stored(value, 1)) for value in values if value is not values[3]
    ]
    assert await ledger.load(SagaId("order-3")) is None


async def test_starts_and_decisions_share_a_moment(ledger: Ledger) -> None:
    """Starts and decisions about other sagas that come together are all applied."""
    old = [saga(f"old-{number}") for number in range(5)]
    await asyncio.gather(*(ledger.start(new(value)) for value in old))
    fresh = [saga(f"fresh-{number}") for number in range(5)]
    appended = [ledger.append(write(advanced(value, "authorize", time=after(1)), 1)) for value in old]
    started = [ledger.start(new(value)) for value in fresh]
    versions = await asyncio.gather(*appended)
    assert versions == [2] * 5
    assert all(result.started for result in await asyncio.gather(*started))
