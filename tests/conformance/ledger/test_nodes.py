"""Incarnations: one at a time, older ones shut out, and their sagas claimed by whoever comes after them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amends_coordinator.core.definition import StoredDefinition
from amends_coordinator.core.ids import NodeId, SagaId
from amends_coordinator.core.plan import Plan
from amends_coordinator.core.states import SagaState
from amends_coordinator.ports.ledger import (
    Ledger,
    LedgerLockedError,
    LedgerUnavailableError,
    Page,
    SupersededError,
    UnknownPlanError,
    UnreadableSagaError,
)
from amends_coordinator.ports.listing import SagaFilter
from tests.conformance.ledger.rigs import Rig, opened
from tests.conformance.ledger.sagas import DEFINITION, NODE, advanced, after, full, new, plan_of, saga, stored, write

NEXT = NodeId("node-2")
NOBODY: frozenset[SagaId] = frozenset()


async def test_what_is_stored_is_found_after_a_crash(rig: Rig) -> None:
    """S11: everything that was answered is there for the next incarnation."""
    ledger = await opened(rig)
    value = saga("order-1")
    await ledger.start(new(value))
    changed = advanced(value, "authorize", time=after(1))
    await ledger.append(write(changed, 1))
    await rig.crash(ledger)
    again = await opened(rig, NEXT)
    released = replace(changed, due_time=changed.updated_time)
    assert await again.load(SagaId("order-1")) == stored(released, 3, owner=None)
    assert await again.get_definition("order", None) == DEFINITION
    await again.close()


async def test_open_releases_the_sagas_of_older_incarnations(rig: Rig) -> None:
    """L1: what a dead incarnation drove is due at once and can be claimed; what has ended is left alone."""
    ledger = await opened(rig)
    waiting = saga("order-1", due_time=after(10**9))
    parked = replace(full("order-2"), due_time=None)
    ended = saga("order-3")
    for value in (waiting, saga("order-2"), ended):
        await ledger.start(new(value))
    await ledger.append(replace(write(parked, 1), intents=parked.intents, dead_letters=parked.dead_letters))
    ended = replace(ended, state=SagaState.COMMITTED, due_time=None, ended_time=after(1))
    await ledger.append(write(ended, 1))
    await rig.crash(ledger)
    again = await opened(rig, NEXT)
    claimed = await again.claim(now=after(20), limit=10, held=NOBODY)
    assert {found.saga.id for found in claimed} == {"order-1", "order-2"}
    assert {found.owner for found in claimed} == {NEXT}
    assert await again.load(SagaId("order-3")) == stored(ended, 2)
    await again.close()


async def test_a_graceful_close_releases_the_sagas(rig: Rig) -> None:
    """L1: a stopped node leaves nothing behind that waits for it."""
    ledger = await opened(rig)
    value = saga("order-1", due_time=after(10**9))
    await ledger.start(new(value))
    await ledger.close()
    again = await opened(rig, NEXT)
    assert await again.load(SagaId("order-1")) == stored(replace(value, due_time=value.updated_time), 2, owner=None)
    await again.close()


async def test_one_process_at_a_time(rig: Rig) -> None:
    """S7: while one holds the ledger another is refused, and told what to do; afterwards it gets it."""
    ledger = await opened(rig)
    second = rig.ledger()
    with pytest.raises(LedgerLockedError):
        await second.open(NEXT, plans=plan_of)
    await ledger.close()
    await second.open(NEXT, plans=plan_of)
    await second.close()


async def test_a_closed_ledger_says_so(rig: Rig) -> None:
    """Whoever comes too late gets an error of the port's, not a hang."""
    ledger = await opened(rig)
    await ledger.close()
    with pytest.raises(LedgerUnavailableError, match="not open"):
        await ledger.load(SagaId("order-1"))
    with pytest.raises(LedgerUnavailableError, match="not open"):
        await ledger.start(new(saga("order-1")))


async def test_claim_takes_what_is_due_oldest_first(ledger: Ledger) -> None:
    """L1: due sagas of nobody and of this node are claimed, the oldest first; held ones are left out."""
    for number, due in enumerate((30, 10, 20, 40, 5)):
        await ledger.start(new(saga(f"order-{number}", due_time=after(due)), owner=None if number % 2 else NODE))
    held = frozenset({SagaId("order-4")})
    claimed = await ledger.claim(now=after(30), limit=10, held=held)
    assert [found.saga.id for found in claimed] == ["order-1", "order-2", "order-0"]
    assert [(found.owner, found.version) for found in claimed] == [(NODE, 2), (NODE, 1), (NODE, 1)]
    assert await ledger.load(SagaId("order-1")) == claimed[0]
    assert claimed[0].saga.intents == saga("order-1").intents


async def test_claim_is_limited_and_held_sagas_hide_none(ledger: Ledger) -> None:
    """L2: however many are held, the next due ones are found."""
    for number in range(10):
        await ledger.start(new(saga(f"order-{number}", due_time=after(number))))
    held = frozenset(SagaId(f"order-{number}") for number in range(6))
    claimed = await ledger.claim(now=after(100), limit=3, held=held)
    assert [found.saga.id for found in claimed] == ["order-6", "order-7", "order-8"]


async def test_a_claimed_saga_can_be_decided_on(rig: Rig) -> None:
    """An adopted saga goes on where it stands, and the former owner's decision is not applied."""
    ledger = await opened(rig)
    value = saga("order-1")
    await ledger.start(new(value))
    await rig.crash(ledger)
    again = await opened(rig, NEXT)
    (found,) = await again.claim(now=after(5), limit=1, held=NOBODY)
    changed = advanced(found.saga, "authorize", time=after(6))
    with pytest.raises(SupersededError):
        await again.append(write(changed, 1))
    assert await again.append(write(changed, found.version)) == found.version + 1
    await again.close()


async def test_a_saga_that_can_not_be_read_keeps_no_other_waiting(rig: Rig) -> None:
    """L2: one bad row stops neither claims nor lists, and says what it is when it is asked for."""
    ledger = await opened(rig)
    for number in range(3):
        await ledger.start(new(saga(f"order-{number}", due_time=after(number)), owner=None))
    await rig.crash(ledger)
    rig.make_unreadable("order-0")
    again = await opened(rig, NEXT)
    assert await again.claim(now=after(5), limit=1, held=NOBODY) == []
    (found,) = await again.claim(now=after(5), limit=1, held=NOBODY)
    assert found.saga.id == "order-1"
    page = await again.list_sagas(SagaFilter(), limit=10, before=None)
    assert isinstance(page, Page)
    assert "order-2" in [found.saga.id for found in page.sagas]
    with pytest.raises(UnreadableSagaError):
        await again.load(SagaId("order-0"))
    await again.close()


async def test_plans_are_made_once(rig: Rig) -> None:
    """A stored definition is turned into its plan once per process, whoever asks for its sagas."""
    ledger = await opened(rig)
    for number in range(3):
        await ledger.start(new(saga(f"order-{number}")))
    await rig.crash(ledger)
    asked: list[StoredDefinition] = []

    def make(definition: StoredDefinition) -> Plan:
        asked.append(definition)
        return plan_of(definition)

    again = await opened(rig, NEXT, plans=make)
    await again.claim(now=after(5), limit=10, held=NOBODY)
    await again.load(SagaId("order-1"))
    await again.list_sagas(SagaFilter(), limit=10, before=None)
    assert asked == [DEFINITION]
    await again.close()


async def test_a_definition_that_gives_no_plan(rig: Rig) -> None:
    """L2: what `plans` raises stays with the sagas of that definition."""
    ledger = await opened(rig)
    await ledger.start(new(saga("order-1")))
    await rig.crash(ledger)

    def fail(definition: StoredDefinition) -> Plan:
        raise ValueError("no such step")

    again = await opened(rig, NEXT, plans=fail)
    with pytest.raises(UnknownPlanError, match="no such step"):
        await again.load(SagaId("order-1"))
    assert await again.claim(now=after(5), limit=10, held=NOBODY) == []
    await again.close()


async def test_heartbeats_are_written(ledger: Ledger) -> None:
    """A node that is alive can say so again and again."""
    await ledger.heartbeat(after(1))
    await ledger.heartbeat(after(2))
