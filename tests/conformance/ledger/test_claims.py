"""Claims when room is short: whose turn it is, and that nobody waits behind sagas that can't go on."""

from __future__ import annotations

from dataclasses import replace

from amends_coordinator.core.ids import NodeId, SagaId
from amends_coordinator.core.states import SagaState
from amends_coordinator.ports.ledger import Ledger, Room
from tests.conformance.ledger.rigs import Rig, opened
from tests.conformance.ledger.sagas import advanced, after, new, saga, write
from tests.conformance.ledger.verbs import cause, entry


async def test_claim_takes_those_that_roll_back_first(ledger: Ledger) -> None:
    """L1: what waits for room to begin comes after everything that rolls back or is about to, however long it waits."""
    for number, due in enumerate((10, 20, 30, 40)):
        value = saga(f"order-{number}", due_time=after(due))
        backward = replace(value, state=SagaState.COMPENSATING, failure=cause())
        await ledger.start(new(backward if number == 2 else value, owner=None))
    await ledger.request_abort(SagaId("order-3"), failure=cause(time=after(90)), audit=entry("order-3"))
    claimed = await ledger.claim(now=after(100), limit=3, held=frozenset())
    assert [found.saga.id for found in claimed] == ["order-2", "order-3", "order-0"]


async def test_claim_takes_what_a_node_left_behind_before_what_is_new(rig: Rig) -> None:
    """L1: after a crash the sagas that were driven come first, though others wait for longer."""
    ledger = await opened(rig)
    await ledger.start(new(saga("order-1", time=after(50), due_time=after(70))))
    await rig.crash(ledger)
    again = await opened(rig, NodeId("node-2"))
    await again.start(new(saga("order-2", due_time=after(1)), owner=None))
    (first,) = await again.claim(now=after(100), limit=1, held=frozenset())
    assert first.saga.id == "order-1"
    await again.append(replace(write(advanced(first.saga, "authorize", time=after(60)), first.version)))
    (first,) = await again.claim(now=after(100), limit=1, held=frozenset())
    assert first.saga.id == "order-2", "it goes on now, and has its turn as the others"
    await again.close()


async def _waiting(ledger: Ledger, *waits_for: str) -> None:
    """Sagas "order-0", "order-1" … that are due in this order, and what each waits for."""
    for number, name in enumerate(waits_for):
        await ledger.start(replace(new(saga(f"order-{number}", due_time=after(number))), waits_for=name))


async def _claimed(ledger: Ledger, *, limit: int = 10, room: Room, at: int = 1_000) -> list[str]:
    claimed = await ledger.claim(now=after(at), limit=limit, held=frozenset({SagaId("order-0")}), room=room)
    return [found.saga.id for found in claimed]


async def test_claim_takes_no_more_than_there_is_room_for(ledger: Ledger) -> None:
    """L2: of those that wait for one participant as many as fit; they hide nobody else, however few are looked for."""
    await _waiting(ledger, "bank", "bank", "bank", "bank", "bank", "shop", "", "shop", "shop")
    room = Room(each=2, left={"bank": 1})
    assert await _claimed(ledger, room=room) == ["order-1", "order-5", "order-6", "order-7"]
    assert await _claimed(ledger, room=room, limit=2) == ["order-1", "order-5"]
    assert await _claimed(ledger, room=Room(each=2, left={"bank": 0})) == ["order-5", "order-6", "order-7"]
    assert await _claimed(ledger, room=Room(each=0, left={"bank": 2}), limit=3) == ["order-1", "order-2", "order-5"]
    everything = [f"order-{number}" for number in range(1, 9)]
    assert await _claimed(ledger, room=Room(each=10)) == everything


async def test_what_a_saga_waits_for_changes_with_each_decision(ledger: Ledger) -> None:
    """L2: a saga that goes on is found by what it waits for now."""
    await _waiting(ledger, "", "bank", "")
    value = saga("order-1")
    await ledger.append(replace(write(advanced(value, "authorize", time=after(5)), 1), waits_for=""))
    value = saga("order-2")
    await ledger.append(replace(write(advanced(value, "authorize", time=after(6)), 1), waits_for="bank"))
    assert await _claimed(ledger, room=Room(each=9, left={"bank": 0})) == ["order-1"]


async def test_a_timeout_is_heard_of_whatever_the_saga_waits_for(ledger: Ledger) -> None:
    """L1: a participant that never comes back doesn't keep its sagas from rolling back in time; those that can't roll
    back any more stay where they are.
    """
    await _waiting(ledger, "", "bank")
    for saga_id, is_passed in (("order-2", False), ("order-3", True)):
        late = replace(saga(saga_id), deadline_time=after(50), point_of_no_return_passed=is_passed)
        await ledger.start(replace(new(late), waits_for="bank"))
    room = Room(each=9, left={"bank": 0})
    assert await _claimed(ledger, room=room, at=49) == []
    assert await _claimed(ledger, room=room, at=50) == ["order-2"]


async def test_an_abort_is_heard_of_whatever_the_saga_waits_for(ledger: Ledger) -> None:
    """S10: what a person writes makes the saga wait for nobody."""
    await _waiting(ledger, "", "bank")
    await ledger.request_abort(SagaId("order-1"), failure=cause(), audit=entry("order-1"))
    assert await _claimed(ledger, room=Room(each=9, left={"bank": 0})) == ["order-1"]
