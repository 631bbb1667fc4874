"""Retention: what is emptied, what is left alone, and what an emptied saga still says."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from amends_coordinator.core.ids import Instant, NodeId, SagaId
from amends_coordinator.core.saga import Failure, Saga
from amends_coordinator.core.states import SagaState
from amends_coordinator.ports.ledger import InputHash, Ledger, NodeFencedError, StoredSaga
from tests.conformance.ledger.rigs import Rig, opened
from tests.conformance.ledger.sagas import NODE, after, full, new, saga, stored, succeeded, write

LATER = after(1_000_000)
HASH = InputHash(value=b"\x01hash", recipe="sha256-v1")


def ended(saga_id: str, *, time: Instant, state: SagaState = SagaState.COMMITTED) -> Saga:
    """A saga that ended at an instant, with payloads and labels."""
    begun = saga(saga_id)
    return replace(
        begun,
        state=state,
        labels=MappingProxyType({"team": "shop"}),
        output=b"\x00output",
        intents=(succeeded(begun.intents[0], time=time),),
        due_time=None,
        updated_time=time,
        ended_time=time,
    )


async def put(ledger: Ledger, value: Saga) -> None:
    """Store a saga as a start and a decision leave it."""
    begun = replace(saga(value.id), labels=value.labels)
    await ledger.start(replace(new(begun), participants=("carrier",)))
    await ledger.append(replace(write(value, 1), dead_letters=value.dead_letters))


async def is_purged(ledger: Ledger, saga_id: str) -> bool:
    """Whether only its row is left."""
    found = await ledger.load(SagaId(saga_id))
    assert found is not None
    return found.purged is not None


async def test_an_emptied_saga_keeps_its_row(rig: Rig) -> None:
    """S8, S9: it says how it ended and when, for ever, and has nothing left that a payload could be read from."""
    ledger = await opened(rig)
    failure = Failure(step=None, reason="TIMED_OUT", status_code="", message="card 4111 declined", time=after(4))
    settled = tuple(replace(letter, closed_time=after(8)) for letter in full("order-1").dead_letters)
    whole = replace(
        ended("order-1", time=after(9), state=SagaState.COMPENSATED),
        failure=failure,
        unproven=True,
        dead_letters=settled,
    )
    await put(ledger, whole)
    assert await ledger.purge(ended_before=after(10), limit=10) == 1
    left = replace(
        whole,
        input=b"",
        output=None,
        labels=MappingProxyType({}),
        intents=(),
        failure=replace(failure, message=""),
        dead_letters=tuple(replace(letter, last_error="") for letter in settled),
    )
    stub = replace(stored(left, 3), purged=HASH)
    assert await ledger.load(SagaId("order-1")) == stub
    assert await ledger.purge(ended_before=LATER, limit=10) == 0, "nothing is emptied twice"
    await ledger.close()

    again = await opened(rig, NodeId("node-2"))
    assert await again.load(SagaId("order-1")) == stub, "nobody owns or claims it"
    assert list(await again.claim(now=LATER, limit=10, held=frozenset())) == []
    await again.close()


async def test_a_start_finds_the_stub(ledger: Ledger) -> None:
    """F05, S9: the id is used for ever; the hash of the input that it was used with is there to compare."""
    await put(ledger, ended("order-1", time=after(9)))
    await ledger.purge(ended_before=LATER, limit=10)
    started = await ledger.start(new(saga("order-1"), request="request-2"))
    assert not started.started
    assert (started.stored.purged, started.stored.saga.state) == (HASH, SagaState.COMMITTED)
    assert started.stored.saga.intents == ()


async def test_only_what_ended_long_ago_and_is_settled_is_emptied(ledger: Ledger) -> None:
    """L1: not what runs, waits for a person, has steps left that follow its compensation, or ended just now."""
    letters = full("x").dead_letters
    open_letter = replace(letters[0], closed_time=None)
    kept = (
        saga("runs"),
        replace(ended("stuck", time=after(1), state=SagaState.COMPENSATION_FAILED), ended_time=None),
        replace(ended("attention", time=after(1)), dead_letters=(replace(open_letter, id=letters[0].id),)),
        replace(ended("apologises", time=after(1), state=SagaState.COMPENSATED), due_time=after(2)),
        ended("young", time=after(10)),
    )
    for value in (*kept, ended("old", time=after(9))):
        await put(ledger, value)
    assert await ledger.purge(ended_before=after(10), limit=10) == 1
    assert await is_purged(ledger, "old")
    assert not any([await is_purged(ledger, value.id) for value in kept])


async def test_the_oldest_ends_go_first_a_few_at_a_time(ledger: Ledger) -> None:
    """L2: a batch is bounded, however much there is to do."""
    for number in range(5):
        await put(ledger, ended(f"order-{number}", time=after(10 - number)))
    assert await ledger.purge(ended_before=LATER, limit=3) == 3
    assert [await is_purged(ledger, f"order-{number}") for number in range(5)] == [False, False, True, True, True]
    assert await ledger.purge(ended_before=LATER, limit=3) == 2
    assert await ledger.purge(ended_before=LATER, limit=3) == 0


async def test_an_emptied_saga_is_counted_as_it_ended(ledger: Ledger) -> None:
    """S8: an end never changes."""
    await put(ledger, ended("order-1", time=after(9)))
    await ledger.purge(ended_before=LATER, limit=10)
    assert await ledger.count_by_state() == {SagaState.COMMITTED: 1}


async def test_a_fenced_node_empties_nothing(rig: Rig) -> None:
    """S7: retention is a write like every other."""
    ledger = await opened(rig)
    await put(ledger, ended("order-1", time=after(9)))
    rig.fence(NODE)
    with pytest.raises(NodeFencedError):
        await ledger.purge(ended_before=LATER, limit=10)
    found = await ledger.load(SagaId("order-1"))
    assert isinstance(found, StoredSaga)
    assert found.purged is None
    await rig.crash(ledger)
