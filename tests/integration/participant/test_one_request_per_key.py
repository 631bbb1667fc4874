"""What a participant remembers of keys, seen from a channel that knows nothing of the SDK."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from amends.participant import context
from amends.participant.context import StepContext
from amends.participant.key_memory import KeyInUseError, KeyMemory, wait_in_thread, wait_on_loop
from shop.inventory.v1.inventory_pb2 import ReserveRequest, ReserveResponse
from tests.integration.participant.calls import RESERVE, ReserveContext, as_step
from tests.integration.participant.test_answers import reserve, serving

ABORTED, OK = grpc.StatusCode.ABORTED, grpc.StatusCode.OK


async def test_f06_another_request_under_a_key_does_not_run() -> None:
    """F06, S2: refused as unknown; the key's own request may come again, also where the call was refused."""
    bodies: list[str] = []

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        bodies.append(request.sku)
        return ReserveResponse(reservation_id=request.sku)

    async with serving(behaviour) as channel:
        first = await reserve(channel, as_step(), sku="ten")
        other = await reserve(channel, as_step(amends_attempt="2"), sku="ninety-nine")
        again = await reserve(channel, as_step(amends_attempt="3"), sku="ten")
        elsewhere = await reserve(channel, as_step(amends_ledger="staging"), sku="ninety-nine")
        plain = await reserve(channel, (), sku="ninety-nine")
    assert [answer.code for answer in (first, other, again, elsewhere, plain)] == [OK, ABORTED, OK, OK, OK]
    assert "came with another request before" in other.text
    assert "amends-executed" not in other.trailers, "it proves nothing about the call that ran"
    assert bodies == ["ten", "ten", "ninety-nine", "ninety-nine"]


async def test_f06_fifty_mixed_calls_at_once_run_one_body_at_a_time() -> None:
    """F06, S2: whichever request comes first owns the key; copies of it never run beside it."""
    running: Counter[str] = Counter()
    most = 0

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        nonlocal most
        running[request.sku] += 1
        most = max(most, running.total())
        for _ in range(3):
            await asyncio.sleep(0)
        running[request.sku] -= 1
        return ReserveResponse(reservation_id=request.sku)

    async with serving(behaviour) as channel:
        skus = ["ten" if number % 2 else "ninety-nine" for number in range(50)]
        answers = await asyncio.gather(*(reserve(channel, as_step(), sku=sku) for sku in skus))
    assert most == 1
    assert {answer.code for answer in answers} <= {OK, ABORTED}
    served = {ReserveResponse.FromString(answer.response).reservation_id for answer in answers if answer.code is OK}
    assert len(served) == 1


async def test_a_copy_waits_for_the_call_that_runs() -> None:
    """S2, S5: the handler of an attempt that nobody waits for any more still runs; the next begins after its end."""
    began, goes_on, events = asyncio.Event(), asyncio.Event(), list[str]()

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        if began.is_set():
            events.append("the copy begins")
            return ReserveResponse(reservation_id="r-1")
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await goes_on.wait()  # cleans up, and takes its time for it
            events.append("the first ends")
        raise AssertionError

    async with serving(behaviour) as channel:
        first = asyncio.create_task(reserve(channel, as_step(), timeout_s=None))
        await began.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        copy = asyncio.create_task(reserve(channel, as_step(amends_attempt="2")))
        too_late = await reserve(channel, as_step(amends_attempt="3"), timeout_s=0.2)
        goes_on.set()
        assert (await copy).code is OK
    assert too_late.code in {ABORTED, grpc.StatusCode.DEADLINE_EXCEEDED}
    assert events == ["the first ends", "the copy begins"]


async def test_a_request_that_does_not_parse_does_not_run() -> None:
    """S4: the two ends speak different protos: nothing ran, and the answer says so."""
    async with serving(not_to_be_called) as channel:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{RESERVE}")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(b"\x0a\xff", metadata=as_step(), timeout=10)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "don't parse as what shop.inventory.v1.InventoryService/Reserve takes" in (caught.value.details() or "")


async def not_to_be_called(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
    """Fails."""
    raise AssertionError(request)


def step(saga_id: str, *, remaining_s: float | None = None) -> StepContext:
    """The step of a saga."""
    return StepContext.from_metadata(as_step(saga_id), time_remaining=lambda: remaining_s)


def undo(saga_id: str, *, remaining_s: float | None = None) -> StepContext:
    """What undoes it."""
    key = step(saga_id).key
    about = as_step(saga_id, idempotency_key=f"{key}/undo", amends_action_key=key)
    return StepContext.from_metadata(about, time_remaining=lambda: remaining_s)


def begin(memory: KeyMemory, step: StepContext, request: bytes = b"ten", method: str = RESERVE) -> None:
    """Begin in a thread, after what is in the way."""
    while (other := memory.begin(step, method, request)) is not None:
        wait_in_thread(other, step)


async def begin_on_loop(memory: KeyMemory, step: StepContext, request: bytes = b"ten", method: str = RESERVE) -> None:
    """Begin on the loop, after what is in the way."""
    while (other := memory.begin(step, method, request)) is not None:
        await wait_on_loop(other, step)


async def test_the_memory_is_bounded_and_running_calls_never_fall_out_of_it() -> None:
    """F06: the keys that came last are remembered longest; ended ones beyond the bound are forgotten."""
    memory = KeyMemory(limit=2)
    await begin_on_loop(memory, step("runs"))
    for saga_id in ("a", "b", "c"):
        await begin_on_loop(memory, step(saga_id))
        memory.end(step(saga_id))
    await begin_on_loop(memory, step("a"), b"ninety-nine")  # forgotten: nobody can tell any more
    for saga_id in ("runs", "b", "c"):
        with pytest.raises(KeyInUseError, match="another request"):
            await begin_on_loop(memory, step(saga_id), b"ninety-nine")
    with pytest.raises(KeyInUseError, match="another request"):
        await begin_on_loop(memory, step("c"), b"ten", f"{RESERVE}Again")
    copy = asyncio.create_task(begin_on_loop(memory, step("runs")))
    await asyncio.sleep(0)
    memory.end(step("runs"))
    await copy


@pytest.mark.parametrize("known_as", [hash, tuple])
def test_f06_a_key_is_known_by_its_number_or_where_that_is_short_by_itself(
    known_as: Callable[[tuple[str, str]], Hashable], monkeypatch: pytest.MonkeyPatch
) -> None:
    """F06: one request per key also on a Python whose hashes have 32 bits, where two of many keys may share one."""
    monkeypatch.setattr(context, "_known_as", known_as)
    memory = KeyMemory()
    first = step("order-1")
    assert isinstance(first.ledger_key, int if known_as is hash else tuple)
    begin(memory, first)
    assert memory.begin(undo("order-1"), RESERVE, b"ten") is not None  # it waits for its action
    memory.end(first)
    begin(memory, step("order-2"), b"eleven")
    with pytest.raises(KeyInUseError):
        begin(memory, step("order-1"), b"eleven")


def test_a_copy_in_a_thread_waits_and_gives_up_at_its_deadline() -> None:
    """S2, S5: the same for calls that have a thread of their own, and for the undo of an action that runs."""
    memory = KeyMemory()
    begin(memory, step("order-1"))
    with pytest.raises(KeyInUseError, match="is running"):
        begin(memory, step("order-1", remaining_s=0.0))
    with pytest.raises(KeyInUseError, match="is running"):
        begin(memory, undo("order-1", remaining_s=0.0))
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(begin, memory, undo("order-1"))
        memory.end(step("order-1"))
        waiting.result(10)
