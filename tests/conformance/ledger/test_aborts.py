"""Aborts: decided by the saga's own row, true whoever writes at the same time, the same when they are repeated."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from amends_coordinator.core.ids import SagaId
from amends_coordinator.core.operate import accept_abort
from amends_coordinator.core.saga import Saga
from amends_coordinator.core.states import SagaState
from amends_coordinator.ports.ledger import Ledger, SupersededError, UnreadableSagaError
from tests.conformance.ledger.rigs import Rig, opened
from tests.conformance.ledger.sagas import advanced, after, new, saga, stored
from tests.conformance.ledger.verbs import cause, entry, put, write

SAGA = SagaId("order-1")
RUNNING = saga("order-1")
PASSED = replace(RUNNING, point_of_no_return_passed=True)
BACKWARD = replace(RUNNING, state=SagaState.COMPENSATING, failure=cause("refused", time=after(5)))
STANDS = [
    pytest.param(RUNNING, True, id="running"),
    pytest.param(replace(RUNNING, failure=cause("asked for", time=after(5))), True, id="running, with a cause"),
    pytest.param(PASSED, False, id="past its point of no return"),
    pytest.param(replace(PASSED, state=SagaState.COMMITTED, due_time=None), False, id="committed"),
    pytest.param(replace(RUNNING, state=SagaState.COMMITTED, due_time=None), False, id="committed without a pivot"),
    pytest.param(BACKWARD, True, id="rolling back"),
    pytest.param(replace(BACKWARD, state=SagaState.COMPENSATION_FAILED), True, id="waits for a person"),
    pytest.param(replace(BACKWARD, state=SagaState.COMPENSATED, due_time=None), True, id="compensated"),
    pytest.param(replace(RUNNING, abort_requested=True, failure=cause("first")), True, id="aborted before"),
]


def marked(value: Saga) -> Saga:
    """The saga after an abort that it can still obey; else as it was."""
    if value.state is not SagaState.RUNNING or value.point_of_no_return_passed or value.abort_requested:
        return value
    failure = value.failure or cause()
    return replace(
        value,
        abort_requested=True,
        failure=failure,
        due_time=after(50),
        updated_time=after(50),
        progress_time=after(50),
    )


@pytest.mark.parametrize(("value", "accepted"), STANDS)
async def test_what_an_abort_does(ledger: Ledger, value: Saga, accepted: bool) -> None:
    """S10: an accepted abort is marked with its cause, a refused one changes nothing, repeated it says the same."""
    await put(ledger, value)
    version = 2 if marked(value) == value else 3
    for _ in range(2):
        answer = await ledger.request_abort(SAGA, failure=cause(), audit=entry("order-1"))
        assert answer is not None
        assert (answer.accepted, answer.stored) == (accepted, stored(marked(value), version))
    entries = (await ledger.list_audit_entries(SAGA, limit=5, before=None)).entries
    assert len(entries) == version - 2


async def test_an_abort_of_nothing(ledger: Ledger) -> None:
    """There is no such saga."""
    assert await ledger.request_abort(SAGA, failure=cause(), audit=entry("order-1")) is None


async def test_the_owner_learns_of_an_abort_before_it_goes_on(ledger: Ledger) -> None:
    """S6: the pivot's intent, decided before the abort was known, is not written after it."""
    await ledger.start(new(RUNNING))
    await ledger.request_abort(SAGA, failure=cause(), audit=entry("order-1"))
    onward = replace(advanced(RUNNING, "ship", time=after(51)), point_of_no_return_passed=True)
    with pytest.raises(SupersededError) as caught:
        await ledger.append(write(onward, 1))
    assert caught.value.current == stored(marked(RUNNING), 2)


@pytest.mark.timeline
async def test_v4_an_abort_beside_the_pivots_intent(ledger: Ledger) -> None:
    """V4, F09, S10: an abort that arrives together with the pivot's intent is told the truth, whichever came first."""
    for number in range(20):
        value = saga(f"order-{number}")
        await ledger.start(new(value))
        onward = replace(advanced(value, "ship", time=after(51)), point_of_no_return_passed=True)
        appending = asyncio.ensure_future(ledger.append(write(onward, 1)))
        if number % 2:
            await asyncio.sleep(0)
        audit = entry(value.id, number)
        answer = await ledger.request_abort(value.id, failure=cause(), audit=audit)
        (written,) = await asyncio.gather(appending, return_exceptions=True)
        found = await ledger.load(value.id)
        assert answer is not None
        assert found is not None
        assert answer.accepted is isinstance(written, SupersededError)
        assert found.saga.abort_requested is answer.accepted
        assert found.saga.point_of_no_return_passed is not answer.accepted


async def test_an_unreadable_saga_is_aborted_all_the_same(rig: Rig) -> None:
    """The abort needs the row alone; what can't be read can't be answered."""
    ledger = await opened(rig)
    await ledger.start(new(RUNNING))
    rig.make_unreadable("order-1")
    with pytest.raises(UnreadableSagaError):
        await ledger.request_abort(SAGA, failure=cause(), audit=entry("order-1"))
    assert len((await ledger.list_audit_entries(SAGA, limit=5, before=None)).entries) == 1
    await ledger.close()


@pytest.mark.parametrize(("value", "accepted"), STANDS)
def test_the_core_says_the_same(value: Saga, accepted: bool) -> None:
    """S10: what every adapter decides from the saga's row is the rule of the core."""
    decided = accept_abort(value, cause().message, cause().time)
    assert decided == (marked(value) if accepted else None)
