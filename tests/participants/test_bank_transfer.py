"""Transfers between two banks as sagas, with real processes: whatever happens, no money is made and none is lost.

All of it happens in one town: processes take longest to start.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from amends import Committed, Compensated, SagaClient
from amends.v1 import saga_pb2
from amends.v1.saga_definition_pb2 import StepKind
from amends_coordinator.definitions.registration import resolve
from bank.saga import transfer
from tests.participants.banks import ALICE, BOB, IN_ALL, town, transfer_of
from tests.waiting import eventually, pause

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from amends import SagaHandle
    from bank.v1.bank_pb2 import Transferred
    from tests.participants.banks import Town

pytestmark = [pytest.mark.crash, pytest.mark.asyncio(loop_scope="module")]

HELD = ("--hold-reply", "Credit:account_id=bob:60")
"""Money is on Bob's account, and the first answer doesn't say so."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="place")
async def _place(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Town]:
    """A coordinator and both banks, for all tests of this module."""
    async with town(tmp_path_factory.mktemp("town")) as place:
        yield place


@pytest_asyncio.fixture(loop_scope="module", name="client")
async def _client(place: Town) -> AsyncGenerator[SagaClient]:
    """Who starts transfers; both banks are open."""
    await place.open_all()
    async with SagaClient(place.coordinator.address) as client:
        yield client


async def ended(handle: SagaHandle[Transferred], place: Town) -> Committed[Transferred] | Compensated:
    """The end of a transfer; nothing is on its way any more, and all money is still there."""
    end = await handle.wait()
    assert isinstance(end, Committed | Compensated), end
    assert (place.in_all(), place.on_its_way()) == (IN_ALL, 0)
    return end


async def once(handle: SagaHandle[Transferred], condition: Callable[[saga_pb2.Saga], bool]) -> saga_pb2.Saga:
    """The saga, once a condition holds for it; the test's own timeout bounds it."""
    while not condition(saga := await handle.get()):
        await pause()
    return saga


def not_sent(saga: saga_pb2.Saga, step: str, direction: saga_pb2.Direction.ValueType) -> bool:
    """Whether a call was tried and handed to nobody."""
    rows = (row for row in saga.intents if (row.step, row.direction) == (step, direction))
    return any(row.last_error and row.attempts[0].outcome == saga_pb2.OUTCOME_NOT_SENT for row in rows)


async def test_what_is_done_when() -> None:
    """S6: what can be refused comes before the money has arrived, or is that step; after it nothing is returned."""
    steps = resolve(transfer.definition()).steps
    assert [(step.name, step.kind, step.participant_input) for step in steps] == [
        ("debit", StepKind.STEP_KIND_COMPENSATABLE, "from_bank"),
        ("credit", StepKind.STEP_KIND_PIVOT, "to_bank"),
        ("complete", StepKind.STEP_KIND_RETRIABLE, "from_bank"),
    ]
    assert [step.lookup.method.rpartition("/")[2] for step in steps] == ["FindDebit", "FindCredit", ""]


async def test_each_step_reaches_the_bank_that_has_the_account(place: Town, client: SagaClient) -> None:
    """There and back, and where both ends are at one bank."""
    handle = await client.start(transfer, transfer_of(3_000))
    assert isinstance(await ended(handle, place), Committed)
    assert (place.balance(ALICE), place.balance(BOB)) == (7_000, 5_000)
    assert [(row.step, row.participant) for row in (await handle.get()).intents] == [
        ("debit", "bank-a"),
        ("credit", "bank-b"),
        ("complete", "bank-a"),
    ]
    assert isinstance(await ended(await client.start(transfer, transfer_of(5_000, BOB, ALICE)), place), Committed)
    assert isinstance(await ended(await client.start(transfer, transfer_of(1, ALICE, ALICE)), place), Committed)
    assert (place.balance(ALICE), place.balance(BOB)) == (12_000, 0)


async def test_what_is_refused_on_either_side_leaves_all_money_where_it_was(place: Town, client: SagaClient) -> None:
    """S4: a refused debit moved nothing, a refused credit's debit is returned, and both are proven; many at once
    overdraw nothing.
    """
    before = (place.balance(ALICE), place.balance(BOB))
    for order, reason in (
        (transfer_of(12_501), "OVERDRAWN"),
        (transfer_of(5, ALICE, "bank-b/ben"), "ACCOUNT_NOT_OPEN"),
        (transfer_of(5, ALICE, "bank-b/alice"), "NO_ACCOUNT"),
        (transfer_of(5, "bank-a/anna", BOB), "ACCOUNT_NOT_OPEN"),
        (transfer_of(-5), "NO_MONEY"),
    ):
        refused = await ended(await client.start(transfer, order), place)
        assert isinstance(refused, Compensated)
        assert (refused.failure.reason, refused.unproven) == (reason, False)
    assert (place.balance(ALICE), place.balance(BOB)) == before
    many = await asyncio.gather(*(client.start(transfer, transfer_of(5_000)) for _ in range(8)))
    ends = await asyncio.gather(*(handle.wait() for handle in many))
    assert sum(isinstance(end, Committed) for end in ends) == before[0] // 5_000
    assert (place.in_all(), place.on_its_way(), place.balance(ALICE)) == (IN_ALL, 0, before[0] % 5_000)
    assert isinstance(await ended(await client.start(transfer, transfer_of(9_000, BOB, ALICE)), place), Committed)


async def test_a_bank_that_is_closed_is_waited_for_wherever_it_opens(place: Town, client: SagaClient) -> None:
    """L1, S4: while the second bank is closed the money waits at the first. If its credit is refused then, it is
    returned to the first, which was closed meanwhile: the return waits, too, and goes to no other bank.
    """
    before = (place.balance(ALICE), place.balance(BOB))
    await place.close("bank-b")
    good = await client.start(transfer, transfer_of(1_000))
    bad = await client.start(transfer, transfer_of(500, ALICE, "bank-b/ben"))
    for handle in (good, bad):
        waiting = await once(handle, lambda saga: not_sent(saga, "credit", saga_pb2.DIRECTION_ACTION))
        assert (waiting.state, waiting.attention_required) == (saga_pb2.Saga.STATE_RUNNING, False)
    assert (place.in_all(), place.on_its_way()) == (IN_ALL - 1_500, 1_500)
    await place.close("bank-a")
    await place.open("bank-b")
    waiting = await once(bad, lambda saga: not_sent(saga, "debit", saga_pb2.DIRECTION_COMPENSATION))
    assert (waiting.state, waiting.compensations_owed) == (saga_pb2.Saga.STATE_COMPENSATING, 1)
    await place.open("bank-a")
    assert [type(await handle.wait()) for handle in (good, bad)] == [Committed, Compensated]
    assert (place.in_all(), place.on_its_way()) == (IN_ALL, 0)
    assert (place.balance(ALICE), place.balance(BOB)) == (before[0] - 1_000, before[1] + 1_000)


@pytest.mark.parametrize("killed", ["coordinator", "bank-b", "all"])
async def test_a_kill_while_the_money_arrives(place: Town, client: SagaClient, killed: str) -> None:
    """S2, V6: Bob has the money and nobody has heard so. Whoever is killed then: the credit is sent to the same bank
    with the same key, is there once, and the transfer is completed.
    """
    await place.close("bank-b")
    await place.open("bank-b", *HELD)
    before = place.balance(BOB)
    handle = await client.start(transfer, transfer_of(700))
    await eventually(lambda: place.balance(BOB) == before + 700, what="the money has arrived")
    banks = {"coordinator": (), "bank-b": ("bank-b",), "all": ("bank-a", "bank-b")}[killed]
    for name in banks:
        await place.close(name)
    if killed != "bank-b":
        await place.coordinator.kill()
        await place.coordinator.start()
    for name in banks:
        await place.open(name)
    assert isinstance(await ended(handle, place), Committed)
    assert place.balance(BOB) == before + 700
    (first, made), *later = place.outcomes("bank-b", handle.saga_id, "Credit")
    assert made
    assert first in {None, "CANCELLED"}, "the call that did it was never answered"
    assert ("OK", False) in later
    assert not any(again for _, again in later)
