"""What people decide about stored sagas: under the version that they saw, with its audit entry, and never twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amends_coordinator.core.ids import NodeId, SagaId
from amends_coordinator.ports.ledger import Ledger, NodeFencedError, SupersededError, WriteRefusedError
from tests.conformance.ledger.rigs import Rig, opened
from tests.conformance.ledger.sagas import NODE, advanced, after, new, saga, stored
from tests.conformance.ledger.verbs import entry, parked, put, retried, write

SAGA = SagaId("order-1")
NOBODY: frozenset[SagaId] = frozenset()


async def test_a_verb_is_applied_with_its_audit_entry(ledger: Ledger) -> None:
    """S11: what was answered is there: the rows, the closed dead letter, and who did it."""
    value = await put(ledger, parked("order-1"))
    changed = retried(value, time=after(9))
    assert await ledger.append_verb(write(changed, 2), entry("order-1", letter="order-1/reserve/action/1")) == 3
    assert await ledger.load(SAGA) == stored(changed, 3)
    page = await ledger.list_audit_entries(SAGA, limit=10, before=None)
    assert page.entries == (entry("order-1", letter="order-1/reserve/action/1"),)


async def test_a_verb_needs_no_owner_and_changes_none(rig: Rig) -> None:
    """Whoever is asked writes, and the node that drives the saga stays its owner."""
    ledger = await opened(rig)
    value = await put(ledger, parked("order-1"))
    released = saga("order-2")
    await ledger.start(new(released, owner=None))
    await ledger.append_verb(write(retried(value, time=after(9)), 2), entry("order-1"))
    await ledger.append_verb(write(retried(released, time=after(9)), 1), entry("order-2", 2))
    owners = [(await ledger.load(SagaId(name))) for name in ("order-1", "order-2")]
    assert [None if found is None else found.owner for found in owners] == [NODE, None]
    await ledger.close()


async def test_a_verb_on_an_old_version_is_superseded(ledger: Ledger) -> None:
    """A person decides on what they saw; else they learn what stands now, and nothing is kept of it."""
    value = await put(ledger, parked("order-1"))
    with pytest.raises(SupersededError) as caught:
        await ledger.append_verb(write(retried(value, time=after(9)), 1), entry("order-1"))
    assert caught.value.current == stored(value, 2)
    assert await ledger.load(SAGA) == stored(value, 2)
    assert (await ledger.list_audit_entries(SAGA, limit=10, before=None)).entries == ()


async def test_a_verb_about_no_saga_is_refused(ledger: Ledger) -> None:
    """There is nothing to decide again on."""
    with pytest.raises(WriteRefusedError, match="order-1"):
        await ledger.append_verb(write(parked("order-1"), 1), entry("order-1"))


async def test_a_verb_sent_again_is_recognised(ledger: Ledger) -> None:
    """Rule 4: the answer was lost, not the effect: sent again it changes nothing, whoever wrote in between."""
    value = await put(ledger, parked("order-1"))
    changed = retried(value, time=after(9))
    await ledger.append_verb(write(changed, 2), entry("order-1"))
    assert await ledger.append_verb(write(changed, 2), entry("order-1")) == 3
    later = advanced(changed, "authorize", time=after(10))
    await ledger.append(write(later, 3))
    assert await ledger.append_verb(write(changed, 2), entry("order-1")) == 4
    assert await ledger.load(SAGA) == stored(later, 4)
    assert len((await ledger.list_audit_entries(SAGA, limit=10, before=None)).entries) == 1


async def test_an_owners_decision_after_a_verb_is_decided_again(ledger: Ledger) -> None:
    """One guard per saga: the driver that saw the saga before the verb learns of it before anything is applied."""
    value = await put(ledger, parked("order-1"))
    changed = retried(value, time=after(9))
    await ledger.append_verb(write(changed, 2), entry("order-1"))
    with pytest.raises(SupersededError) as caught:
        await ledger.append(write(advanced(value, "authorize", time=after(10)), 2))
    assert caught.value.current == stored(changed, 3)


@pytest.mark.timeline
async def test_v22_an_owners_lost_answer_with_a_verb_in_between(ledger: Ledger) -> None:
    """V22, rule 4: a decision that was applied is recognised although an operator has written since."""
    value = saga("order-1")
    await ledger.start(new(value))
    decided = write(parked("order-1"), 1)
    await ledger.append(decided)
    changed = retried(decided.saga, time=after(9))
    await ledger.append_verb(write(changed, 2), entry("order-1"))
    assert await ledger.append(decided) == 2
    assert await ledger.load(SAGA) == stored(changed, 3)


async def test_a_verb_makes_the_saga_due(ledger: Ledger) -> None:
    """L1: a saga that waited for a person is taken up, by its owner or by whoever claims it."""
    value = await put(ledger, parked("order-1"))
    assert await ledger.claim(now=after(9), limit=5, held=NOBODY) == []
    await ledger.append_verb(write(retried(value, time=after(9)), 2), entry("order-1"))
    (claimed,) = await ledger.claim(now=after(9), limit=5, held=NOBODY)
    assert claimed.saga.id == SAGA


async def test_a_fenced_node_writes_no_verb(rig: Rig) -> None:
    """S7."""
    ledger = await opened(rig)
    value = await put(ledger, parked("order-1"))
    rig.fence(NODE)
    with pytest.raises(NodeFencedError):
        await ledger.append_verb(write(retried(value, time=after(9)), 2), entry("order-1"))
    await rig.crash(ledger)


async def test_texts_that_databases_refuse_are_cleaned(ledger: Ledger) -> None:
    """B3: a NUL in a reason is no reason to fail."""
    value = await put(ledger, parked("order-1"))
    audit = replace(entry("order-1"), reason="a\0b\ud800", claimed_actor="\0", details="{}")
    await ledger.append_verb(write(retried(value, time=after(9)), 2), audit)
    (kept,) = (await ledger.list_audit_entries(SAGA, limit=1, before=None)).entries
    assert kept.reason in ("a\ufffdb\ufffd", "a\0b\ud800")


async def test_the_audit_is_told_page_by_page(ledger: Ledger) -> None:
    """Newest first, of one saga or of all, without gaps or repetitions."""
    for number in (1, 2):
        value = await put(ledger, parked(f"order-{number}"))
        for verb in (1, 2):
            audit = entry(value.id, 10 * number + verb, time=after(verb))
            await ledger.append_verb(write(retried(value, time=after(9)), 1 + verb), audit)
    found: list[str] = []
    page = await ledger.list_audit_entries(None, limit=3, before=None)
    while True:
        found += [each.id for each in page.entries]
        if page.next is None:
            break
        page = await ledger.list_audit_entries(None, limit=3, before=page.next)
    assert found == ["audit-22", "audit-12", "audit-21", "audit-11"]
    one = await ledger.list_audit_entries(SagaId("order-2"), limit=9, before=None)
    assert [each.id for each in one.entries] == ["audit-22", "audit-21"]


async def test_a_compensated_saga_with_steps_left_is_claimed(rig: Rig) -> None:
    """L1: `on_compensated` steps are still to do after the end; an ended saga without a due time is never touched."""
    ledger = await opened(rig)
    ended = replace(parked("order-1"), dead_letters=(), due_time=after(20), ended_time=after(3))
    ended = replace(ended, state=type(ended.state).COMPENSATED)
    await put(ledger, ended)
    await put(ledger, replace(ended, id=SagaId("order-2"), due_time=None))
    assert [found.saga.id for found in await ledger.claim(now=after(20), limit=5, held=NOBODY)] == ["order-1"]
    await rig.crash(ledger)
    again = await opened(rig, NodeId("node-2"))
    claimed = await again.claim(now=after(30), limit=5, held=NOBODY)
    assert [(found.saga.id, found.owner) for found in claimed] == [("order-1", "node-2")]
    assert await again.load(SagaId("order-2")) == stored(replace(ended, id=SagaId("order-2"), due_time=None), 2)
    await again.close()


async def test_incarnations_are_listed(rig: Rig) -> None:
    """Who held the ledger, newest first, and who is shut out."""
    ledger = await opened(rig)
    await ledger.heartbeat(after(4))
    await rig.crash(ledger)
    again = await opened(rig, NodeId("node-2"))
    rows = await again.list_nodes()
    assert [(row.node_id, row.heartbeat_time, row.fenced) for row in rows] == [
        ("node-2", None, False),
        ("node-1", after(4), True),
    ]
    assert rows[0].started_time >= rows[1].started_time
    await again.close()
