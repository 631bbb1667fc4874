"""Decisions about stored sagas: whole or not at all, under one guard, recognised when they are sent again."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from amends_coordinator.core.ids import NodeId, SagaId
from amends_coordinator.core.states import SagaState
from amends_coordinator.ports.ledger import Ledger, NodeFencedError, SupersededError, WriteRefusedError
from tests.conformance.ledger.rigs import Rig, opened
from tests.conformance.ledger.sagas import (
    DEFINITION,
    NODE,
    advanced,
    after,
    full,
    intent,
    new,
    plan_of,
    saga,
    stored,
    write,
)

SAGA = SagaId("order-1")


async def test_a_decision_is_loaded_as_it_was_appended(ledger: Ledger) -> None:
    """S11: what append answered for is what the ledger holds."""
    value = saga("order-1")
    await ledger.start(new(value))
    changed = advanced(value, "authorize", time=after(1))
    assert await ledger.append(write(changed, 1)) == 2
    assert await ledger.load(SAGA) == stored(changed, 2)


async def test_every_field_survives(ledger: Ledger) -> None:
    """S11: nothing that a saga, an intent, an attempt or a dead letter holds is lost or changed on the way."""
    value = saga("order-1")
    everything = full("order-1")
    begun = replace(
        value, labels=everything.labels, traceparent=everything.traceparent, tracestate=everything.tracestate
    )
    await ledger.start(new(begun))
    decision = replace(write(everything, 1), intents=everything.intents, dead_letters=everything.dead_letters)
    await ledger.append(decision)
    assert await ledger.load(SAGA) == stored(everything, 2)


async def test_only_listed_rows_change(ledger: Ledger) -> None:
    """A write changes the intents that it lists, and what a saga was started with never changes."""
    value = saga("order-1")
    await ledger.start(new(value))
    announced = replace(value, intents=(*value.intents, intent("authorize")))
    forged = replace(announced, input=b"other", intents=(replace(value.intents[0], attempt=99), announced.intents[1]))
    await ledger.append(replace(write(forged, 1), intents=announced.intents[1:]))
    assert await ledger.load(SAGA) == stored(announced, 2)


async def test_intents_keep_the_order_of_their_announcement(ledger: Ledger) -> None:
    """Intents and dead letters come back in the order in which the saga has them."""
    value = saga("order-1")
    await ledger.start(new(value))
    for version, step in enumerate(("ship", "authorize"), start=1):
        value = advanced(value, step, time=after(version))
        await ledger.append(write(value, version))
    found = await ledger.load(SAGA)
    assert found is not None
    assert [each.step for each in found.saga.intents] == ["reserve", "ship", "authorize"]


async def test_a_decision_on_an_old_version_is_superseded(ledger: Ledger) -> None:
    """A decision is applied only on the version that it saw; else it learns what stands now."""
    value = saga("order-1")
    await ledger.start(new(value))
    first = advanced(value, "authorize", time=after(1))
    await ledger.append(write(first, 1))
    with pytest.raises(SupersededError) as caught:
        await ledger.append(write(advanced(value, "ship", time=after(2)), 1))
    assert caught.value.current == stored(first, 2)
    assert await ledger.load(SAGA) == stored(first, 2)


async def test_a_decision_about_a_saga_of_nobody_is_superseded(ledger: Ledger) -> None:
    """Only the owner decides."""
    value = saga("order-1")
    await ledger.start(new(value, owner=None))
    with pytest.raises(SupersededError) as caught:
        await ledger.append(write(advanced(value, "authorize", time=after(1)), 1))
    assert caught.value.current == stored(value, 1, owner=None)


async def test_a_decision_about_no_saga_is_refused(ledger: Ledger) -> None:
    """There is nothing to reload, and repeating it is useless."""
    with pytest.raises(WriteRefusedError, match="order-1"):
        await ledger.append(write(advanced(saga("order-1"), "authorize", time=after(1)), 1))


async def test_a_refused_decision_spoils_no_other(ledger: Ledger) -> None:
    """L2: of decisions made at once the good ones are applied, whatever becomes of the others."""
    values = [saga(f"order-{number}") for number in range(20)]
    await asyncio.gather(*(ledger.start(new(value)) for value in values))
    decisions = [write(advanced(value, "authorize", time=after(1)), 1) for value in values]
    decisions[7] = replace(decisions[7], seen_version=5)
    results = await asyncio.gather(*(ledger.append(decision) for decision in decisions), return_exceptions=True)
    assert isinstance(results.pop(7), SupersededError)
    assert results == [2] * 19
    untouched = await ledger.load(SagaId("order-7"))
    assert untouched == stored(values[7], 1)


@pytest.mark.timeline
async def test_b01_two_decisions_about_one_saga_at_once(ledger: Ledger) -> None:
    """B1: of two decisions on one version that come together one is applied, and the other is told."""
    value = saga("order-1")
    await ledger.start(new(value))
    one = write(advanced(value, "authorize", time=after(1)), 1)
    other = write(advanced(value, "ship", time=after(2)), 1)
    results = await asyncio.gather(ledger.append(one), ledger.append(other), return_exceptions=True)
    assert results[0] == 2
    assert isinstance(results[1], SupersededError)
    assert await ledger.load(SAGA) == stored(one.saga, 2)


async def test_a_decision_follows_another_without_waiting(ledger: Ledger) -> None:
    """Decisions about one saga that are sent in order are applied in order."""
    value = saga("order-1")
    await ledger.start(new(value))
    first = advanced(value, "authorize", time=after(1))
    second = advanced(first, "ship", time=after(2))
    versions = await asyncio.gather(ledger.append(write(first, 1)), ledger.append(write(second, 2)))
    assert tuple(versions) == (2, 3)
    assert await ledger.load(SAGA) == stored(second, 3)


@pytest.mark.timeline
async def test_v16_a_decision_that_is_sent_again_is_recognised(ledger: Ledger) -> None:
    """V16: an answer that was lost on the way is given again, and nothing is applied twice."""
    value = saga("order-1")
    await ledger.start(new(value))
    decision = write(advanced(value, "authorize", time=after(1)), 1)
    assert await ledger.append(decision) == 2
    assert await ledger.append(replace(decision)) == 2
    assert await ledger.load(SAGA) == stored(decision.saga, 2)


@pytest.mark.timeline
async def test_b03_one_nul_among_64_sagas(ledger: Ledger) -> None:
    """B3: text that databases refuse neither fails its own saga nor the 63 others."""
    values = [saga(f"order-{number}") for number in range(64)]
    await asyncio.gather(*(ledger.start(new(value)) for value in values))
    decisions = [write(advanced(value, "authorize", time=after(1)), 1) for value in values]
    bad = replace(decisions[9].intents[0], last_error="before\0after \ud800 end")
    changed = replace(decisions[9].saga, intents=(bad, decisions[9].intents[1]))
    decisions[9] = write(changed, 1)
    assert await asyncio.gather(*(ledger.append(decision) for decision in decisions)) == [2] * 64
    found = await ledger.load(SagaId("order-9"))
    assert found is not None
    text = found.saga.intents[0].last_error
    assert text.startswith("before")
    assert text.endswith("end")


async def test_an_ended_saga_is_kept(ledger: Ledger) -> None:
    """S8, S9: an end is stored like everything else and stays."""
    value = saga("order-1")
    await ledger.start(new(value))
    ended = replace(
        value, state=SagaState.COMMITTED, output=b"done", due_time=None, ended_time=after(1), updated_time=after(1)
    )
    await ledger.append(write(ended, 1))
    assert await ledger.load(SAGA) == stored(ended, 2)
    assert await ledger.claim(now=after(10**12), limit=10, held=frozenset()) == []


async def test_a_fenced_node_decides_nothing(rig: Rig) -> None:
    """S7: after the fence nothing that this incarnation writes is applied, whatever it is."""
    ledger = await opened(rig)
    value = saga("order-1")
    await ledger.start(new(value))
    rig.fence(NODE)
    for attempt in (
        ledger.append(write(advanced(value, "authorize", time=after(1)), 1)),
        ledger.start(new(saga("order-2"))),
        ledger.claim(now=after(10), limit=5, held=frozenset()),
        ledger.heartbeat(after(11)),
        ledger.put_definition(DEFINITION),
    ):
        with pytest.raises(NodeFencedError, match=NODE):
            await attempt
    assert await ledger.load(SAGA) == stored(value, 1)
    assert await ledger.load(SagaId("order-2")) is None
    await rig.crash(ledger)
    again = rig.ledger()
    await again.open(NodeId("node-2"), plans=plan_of)
    assert await again.load(SAGA) == stored(value, 2, owner=None)
    await again.close()
