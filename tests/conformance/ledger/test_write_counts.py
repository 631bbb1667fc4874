"""How often sagas were written: what those who watch a saga that nobody here drives are told of its changes by."""

from __future__ import annotations

from dataclasses import replace

from amends_coordinator.core.ids import SagaId
from amends_coordinator.ports.ledger import Ledger
from tests.conformance.ledger.rigs import Rig
from tests.conformance.ledger.sagas import after, new, saga, write


async def test_every_write_counts(ledger: Ledger) -> None:
    """Each saga has its own count, which is the version that the saga is loaded with; who isn't there is left out."""
    ids = [SagaId(f"order-{number}") for number in range(3)]
    for saga_id in ids:
        await ledger.start(new(saga(saga_id)))
    for version in (1, 2):
        await ledger.append(write(replace(saga(ids[1]), updated_time=after(version)), version))
    counts = await ledger.write_counts([*ids, SagaId("nobody")])
    assert counts == {ids[0]: 1, ids[1]: 3, ids[2]: 1}
    stored = await ledger.load(ids[1])
    assert stored is not None
    assert stored.version == counts[ids[1]]


async def test_nothing_is_counted_of_nothing(ledger: Ledger) -> None:
    """No ids, no counts."""
    assert await ledger.write_counts([]) == {}


async def test_more_ids_than_one_question_takes(ledger: Ledger) -> None:
    """However many are asked for, all are answered."""
    ids = [SagaId(f"order-{number}") for number in range(1_201)]
    await ledger.start(new(saga(ids[0])))
    await ledger.start(new(saga(ids[-1])))
    assert await ledger.write_counts(ids) == {ids[0]: 1, ids[-1]: 1}


async def test_a_saga_that_cannot_be_read_is_counted(rig: Rig, ledger: Ledger) -> None:
    """A damaged row is no reason not to tell of the others, and it has a count itself (L2)."""
    ids = [SagaId("order-1"), SagaId("order-2")]
    for saga_id in ids:
        await ledger.start(new(saga(saga_id)))
    rig.make_unreadable("order-1")
    assert await ledger.write_counts(ids) == dict.fromkeys(ids, 1)
