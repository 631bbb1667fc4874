"""What stands in the ledger, as those see it who watch over it: ended sagas are never counted."""

from __future__ import annotations

from dataclasses import replace

from amends_coordinator.core.states import SagaState
from amends_coordinator.ports.ledger import Ledger
from tests.conformance.ledger.sagas import after, new, saga, write
from tests.conformance.ledger.verbs import cause, letter, parked, put

ALL_OPEN = (SagaState.RUNNING, SagaState.COMPENSATING, SagaState.COMPENSATION_FAILED)


async def test_an_empty_ledger_has_nothing(ledger: Ledger) -> None:
    """Every state is named, so that a gauge says 0 and not nothing."""
    measures = await ledger.measure(after(0))
    assert measures.unfinished == dict.fromkeys(ALL_OPEN, 0)
    assert measures.open_dead_letter_count == 0
    assert measures.oldest_open_time is measures.oldest_due_time is measures.oldest_compensating_time is None


async def test_sagas_are_counted_by_state_until_they_end(ledger: Ledger) -> None:
    """With since when the oldest rolls back."""
    for number in range(4):
        await ledger.start(new(saga(f"order-{number}")))
    for number, time in ((1, 7), (2, 5)):
        value = replace(saga(f"order-{number}"), state=SagaState.COMPENSATING, failure=cause(time=after(time)))
        await ledger.append(write(value, 1))
    ended = replace(saga("order-3"), state=SagaState.COMMITTED, ended_time=after(9), due_time=None)
    await ledger.append(write(ended, 1))
    measures = await ledger.measure(after(10))
    assert measures.unfinished == {SagaState.RUNNING: 1, SagaState.COMPENSATING: 2, SagaState.COMPENSATION_FAILED: 0}
    assert measures.oldest_compensating_time == after(5)


async def test_the_oldest_of_those_that_nobody_drives_is_told(ledger: Ledger) -> None:
    """A saga that a node has in hand is late for nobody, and one that is due later isn't late."""
    await ledger.start(new(saga("order-1", due_time=after(1))))
    await ledger.start(new(saga("order-2", due_time=after(30)), owner=None))
    await ledger.start(new(saga("order-3", due_time=after(20)), owner=None))
    backward = replace(saga("order-4", due_time=after(25)), state=SagaState.COMPENSATING, failure=cause())
    await ledger.start(new(backward, owner=None))
    assert (await ledger.measure(after(10))).oldest_due_time is None
    assert (await ledger.measure(after(26))).oldest_due_time == after(20)


async def test_open_dead_letters_are_counted(ledger: Ledger) -> None:
    """With the age of the oldest."""
    for number in (3, 1, 2):
        await put(ledger, parked(f"order-{number}", letter(f"order-{number}", time=after(number))))
    measures = await ledger.measure(after(10))
    assert (measures.open_dead_letter_count, measures.oldest_open_time) == (3, after(1))
