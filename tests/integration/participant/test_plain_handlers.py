"""Handlers that are plain functions: they run in threads, and nobody outside can tell them from asynchronous ones."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import NoReturn, TypeAlias, cast

import grpc
import pytest
from google.protobuf.message import Message
from opentelemetry import trace

from amends import ParticipantServer, Rejected, TryLater, current_step
from amends.participant.guards import Answer as Committed
from amends.participant.guards import Decided, Verdict
from amends.participant.wire import Refusal
from shop.inventory.v1.inventory_pb2 import ReleaseResponse, ReserveRequest, ReserveResponse
from shop.inventory.v1.inventory_pb2_grpc import InventoryServiceStub
from tests.integration.participant.calls import (
    NO_COORDINATOR,
    Inventory,
    PlainBehaviour,
    PlainInventory,
    ReserveContext,
    as_step,
)
from tests.integration.participant.test_answers import Answer, answer_of, reserve, serving_servicer
from tests.waiting import eventually

OK, ABORTED = grpc.StatusCode.OK, grpc.StatusCode.ABORTED
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
LONG_S = 10


class OddlyOver(BaseException):
    """What some library raises to get out."""


def refuse() -> NoReturn:
    """Rejects."""
    raise Rejected("sold out", reason="SOLD_OUT", code=grpc.StatusCode.OUT_OF_RANGE)


def later() -> NoReturn:
    """Asks for patience."""
    raise TryLater("stocktaking", timedelta(seconds=3))


def fail() -> NoReturn:
    """Fails."""
    raise ValueError("a secret")


def get_out() -> NoReturn:
    """Gets out."""
    raise OddlyOver("a secret")


def swallow() -> ReserveResponse:
    """Takes a refusal for a failure that it can deal with."""
    try:
        refuse()
    except Exception:  # noqa: BLE001 - the planted mistake
        return ReserveResponse(reservation_id="made up")


def abort_saga() -> ReserveResponse:
    """Succeeds, and wants the saga to end."""
    current_step().abort_saga("too late anyway")
    return ReserveResponse(reservation_id=current_step().saga_id)


def trace_of() -> ReserveResponse:
    """Tells the trace that it hangs under."""
    return ReserveResponse(reservation_id=f"{trace.get_current_span().get_span_context().trace_id:032x}")


def nothing() -> ReserveResponse:
    """Forgets to return."""
    return cast("ReserveResponse", None)


def something_else() -> ReserveResponse:
    """Returns another message."""
    return cast("ReserveResponse", ReleaseResponse())


End: TypeAlias = Callable[[], ReserveResponse]

ENDS: list[End] = [refuse, later, fail, get_out, swallow, abort_saga, trace_of, nothing, something_else]


async def answer_of_plain(behaviour: PlainBehaviour) -> Answer:
    """What one call of a step that behaves like this in a thread is answered."""
    async with serving_servicer(PlainInventory(behaviour)) as channel:
        return await reserve(channel, as_step(traceparent=TRACEPARENT))


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
async def test_a_plain_handler_is_answered_for_like_an_asynchronous_one(end: End) -> None:
    """S4: what proves something, and what nothing, doesn't depend on how a handler is written."""

    async def asynchronous(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        context.set_trailing_metadata((("shop-shelf", "7"),))
        return end()

    def plain(request: ReserveRequest, context: grpc.ServicerContext) -> ReserveResponse:
        context.set_trailing_metadata((("shop-shelf", "7"),))
        return end()

    answer = await answer_of_plain(plain)
    assert answer == await answer_of(asynchronous, as_step(traceparent=TRACEPARENT))
    assert answer.trailers["shop-shelf"] == "7"
    assert "secret" not in answer.text
    assert ReserveResponse.FromString(answer.response).reservation_id != "made up"


async def test_nothing_that_a_plain_handler_raises_ends_more_than_its_call() -> None:
    """L2: in a thread neither a wish to exit nor a cancellation of something else is for anybody but the caller."""
    ends: list[type[BaseException]] = [SystemExit, asyncio.CancelledError]

    def behaviour(request: ReserveRequest, context: grpc.ServicerContext) -> ReserveResponse:
        raise ends[-1]

    while ends:
        answer, end = await answer_of_plain(behaviour), ends.pop()
        assert (answer.code, f"raised {end.__name__}" in answer.text) == (grpc.StatusCode.UNKNOWN, True)


async def test_a_handler_that_forgot_to_be_async_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """S4: what it returned has to be awaited, and nobody does; the log says where and what to do."""

    async def later() -> ReserveResponse:
        raise AssertionError("not to be begun")

    def behaviour(request: ReserveRequest, context: grpc.ServicerContext) -> ReserveResponse:
        return cast("ReserveResponse", later())

    answer = await answer_of_plain(behaviour)
    assert (answer.code, "raised TypeError" in answer.text) == (grpc.StatusCode.UNKNOWN, True)
    assert "PlainInventory.Reserve (" in caplog.text
    assert "is no `async def`, but what it returned has to be awaited" in caplog.text


async def test_trailers_that_are_none_are_refused_where_they_are_set() -> None:
    """S4: later, when the answer is on its way, it would be too late for a word about it."""

    def behaviour(request: ReserveRequest, context: grpc.ServicerContext) -> ReserveResponse:
        with pytest.raises(TypeError, match="pairs of a text and a text or bytes"):
            context.set_trailing_metadata(cast("tuple[tuple[str, str]]", (("shelf", 7),)))
        return ReserveResponse()

    assert await answer_of_plain(behaviour) == Answer(OK, "", {}, b"")


def aborts(request: ReserveRequest, context: grpc.ServicerContext) -> ReserveResponse:
    """Aborts."""
    context.abort(ABORTED, "once more")


def swallows(request: ReserveRequest, context: grpc.ServicerContext) -> ReserveResponse:
    """Aborts, and takes that for a failure that it can deal with."""
    try:
        context.abort(ABORTED, "once more")
    except Exception:  # noqa: BLE001 - the planted mistake
        return ReserveResponse()


def sets(request: ReserveRequest, context: grpc.ServicerContext) -> ReserveResponse:
    """Sets a code."""
    context.set_code(ABORTED)
    context.set_details("once more")
    return ReserveResponse()


GRPCS_WAYS: list[PlainBehaviour] = [aborts, swallows, sets]


async def test_grpcs_own_ways_pass_through_a_thread() -> None:
    """S4: a handler may abort or set a code as in any gRPC server, also if it swallows its own abort."""
    for behaviour in GRPCS_WAYS:
        assert await answer_of_plain(behaviour) == Answer(ABORTED, "once more", {})


async def test_a_plain_handler_has_grpcs_synchronous_context() -> None:
    """S4: what it asks of its context is answered by the call that came."""
    seen: list[object] = []

    def behaviour(request: ReserveRequest, context: grpc.ServicerContext) -> ReserveResponse:
        assert isinstance(context, grpc.ServicerContext)
        metadata = dict(cast("tuple[tuple[str, str], ...]", context.invocation_metadata()))
        seen.extend((metadata["amends-step"], context.is_active(), context.peer().split(":")[0]))
        seen.append(0 < context.time_remaining() < 2 * LONG_S)  # gRPC rounds it up on the wire
        context.send_initial_metadata((("shop-floor", "2"),))
        seen.append(list(context.auth_context()["transport_security_type"]))
        assert context.peer_identities() is None
        assert context.peer_identity_key() is None
        return ReserveResponse()

    async with serving_servicer(PlainInventory(behaviour)) as channel:
        call = InventoryServiceStub(channel).Reserve(ReserveRequest(), metadata=as_step(), timeout=LONG_S)
        await call
        assert (await call.initial_metadata())["shop-floor"] == "2"
    assert seen == ["reserve", True, "ipv4", True, [b"insecure"]]


async def test_a_blocked_thread_holds_up_nobody_else() -> None:
    """L2: other handlers go on, plain ones as far as there are threads; further ones wait for one, and run then."""
    at_once, released = threading.Semaphore(0), threading.Event()
    most, now = 0, 0

    def behaviour(request: ReserveRequest, context: grpc.ServicerContext) -> ReserveResponse:
        nonlocal most, now
        now += 1
        most = max(most, now)
        at_once.release()
        released.wait(LONG_S)
        now -= 1
        return ReserveResponse(reservation_id=request.sku)

    async with serving_servicer(PlainInventory(behaviour), threads=2) as channel:
        calls = [asyncio.create_task(reserve(channel, as_step(f"order-{number}"))) for number in range(5)]
        for _ in range(2):
            assert await asyncio.to_thread(at_once.acquire, timeout=LONG_S)
        assert await _release(channel) is OK
        released.set()
        assert {(await call).code for call in calls} == {OK}
    assert most == 2


async def _release(channel: grpc.aio.Channel) -> grpc.StatusCode:
    """Calls the asynchronous handler of the same class."""
    method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
        "/shop.inventory.v1.InventoryService/Release"
    )
    call = method(b"", timeout=LONG_S)
    await call
    return await call.code()


async def test_a_caller_that_gives_up_does_not_stop_a_thread() -> None:
    """S2, S5: until its thread has ended a call is in flight and its key in use; nobody hears its answer."""
    began, goes_on, told = threading.Event(), threading.Event(), threading.Event()
    active: list[bool] = []

    def behaviour(request: ReserveRequest, context: grpc.ServicerContext) -> ReserveResponse:
        assert context.add_callback(told.set)
        began.set()
        assert goes_on.wait(LONG_S)
        active.append(context.is_active())
        return ReserveResponse(reservation_id="r-1")

    async with serving_servicer(PlainInventory(behaviour), capacity=1) as channel:
        first = asyncio.create_task(reserve(channel, as_step()))
        assert await asyncio.to_thread(began.wait, LONG_S)
        await given_up(first)
        assert await asyncio.to_thread(told.wait, LONG_S)
        other = await reserve(channel, as_step("order-2"))
        goes_on.set()
        await eventually(lambda: bool(active), what="the thread's end")
        again = await _until_it_is_taken(channel)
    assert other.text == "inventory is full: 1 at once is all it takes"
    assert (again.code, active) == (OK, [False, True])


async def given_up(call: asyncio.Task[Answer]) -> None:
    """Its caller waits no longer."""
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def _until_it_is_taken(channel: grpc.aio.Channel) -> Answer:
    """The answer of a repeated call, as soon as there is room for it."""
    async with asyncio.timeout(LONG_S):
        while True:
            answer = await reserve(channel, as_step(amends_attempt="2"))
            if "full" not in answer.text:
                return answer


async def test_a_call_that_nobody_waits_for_any_more_is_not_begun() -> None:
    """S5: what its caller gave up while it waited for a thread never runs."""
    began, goes_on, ran = threading.Event(), threading.Event(), list[str]()

    def behaviour(request: ReserveRequest, context: grpc.ServicerContext) -> ReserveResponse:
        ran.append(request.sku)
        began.set()
        assert goes_on.wait(LONG_S)
        return ReserveResponse()

    server = ParticipantServer("inventory", coordinator=NO_COORDINATOR, threads=1)
    server.add(PlainInventory(behaviour))
    async with server, grpc.aio.insecure_channel(server.address) as channel:
        first = asyncio.create_task(reserve(channel, as_step(), sku="first"))
        assert await asyncio.to_thread(began.wait, LONG_S)
        never_begun = await reserve(channel, as_step("order-2"), sku="never begun", timeout_s=0.2)
        running = server._running  # pyright: ignore[reportPrivateUsage] # only it knows when the call is over there
        assert running is not None
        await eventually(lambda: running.in_flight.count == 1, what="the end of the call that was given up")
        goes_on.set()
        assert (await first).code is OK
        assert (await reserve(channel, as_step("order-3"), sku="next")).code is OK
    assert never_begun.code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert ran == ["first", "next"]


class NotingGuard:
    """A guard that notes in which threads it is asked."""

    def __init__(self, verdict: Verdict | None) -> None:
        self.verdict = verdict
        self.asked: list[tuple[str, int]] = []

    def returned(self, response: Message, *, abort_reason: bytes | None) -> Verdict:
        self.asked.append(("returned", threading.get_ident()))
        return Committed(response=ReserveResponse(reservation_id="stored").SerializeToString(), abort_reason=b"why")

    def raised(self, fault: BaseException) -> Verdict | None:
        self.asked.append((type(fault).__name__, threading.get_ident()))
        return None


async def test_a_guard_decides_in_the_handlers_own_thread() -> None:
    """S4: what was begun in a thread is committed or rolled back there, and its verdict is sent."""
    guard, threads = NotingGuard(None), set[int]()

    def behaviour(request: ReserveRequest, context: grpc.ServicerContext) -> ReserveResponse:
        served = current_step().state.served
        assert served is not None
        assert served.threaded
        current_step().state.guard = guard
        threads.add(threading.get_ident())
        if request.sku == "no":
            refuse()
        return ReserveResponse(reservation_id="r-1")

    async with serving_servicer(PlainInventory(behaviour), threads=1) as channel:
        answers = [await reserve(channel, as_step(sku), sku=sku) for sku in ("yes", "no")]
    assert [answer.code for answer in answers] == [OK, grpc.StatusCode.OUT_OF_RANGE]
    assert answers[0].trailers == {"amends-abort-bin": b"why"}
    assert ReserveResponse.FromString(answers[0].response).reservation_id == "stored"
    assert [(how, where in threads) for how, where in guard.asked] == [("returned", True), ("Rejected", True)]


class SlowGuard(NotingGuard):
    """One of a handler on the loop that takes its time to commit."""

    def __init__(self) -> None:
        super().__init__(None)
        self.commits, self.may_end = asyncio.Event(), asyncio.Event()
        self.committed = False

    async def returned(  # type: ignore[override] # a handler on the loop has an asynchronous guard
        self,
        response: Message,
        *,
        abort_reason: bytes | None,
    ) -> Verdict:  # pyright: ignore[reportIncompatibleMethodOverride] # the same
        self.commits.set()
        await self.may_end.wait()
        self.committed = True
        return Committed(response=b"")


async def test_a_commit_runs_to_its_end_although_the_caller_is_gone_and_the_server_stops() -> None:
    """S4: half a commit is none, however often its call is cancelled; a stop waits for it."""
    guard = SlowGuard()

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        current_step().state.guard = guard  # type: ignore[assignment] # pyright: ignore[reportAttributeAccessIssue] # see there
        return ReserveResponse()

    server = ParticipantServer("inventory", coordinator=NO_COORDINATOR, stop_grace_s=0)
    server.add(Inventory(behaviour))
    async with asyncio.timeout(LONG_S), server, grpc.aio.insecure_channel(server.address) as channel:
        call = asyncio.create_task(reserve(channel, as_step()))
        await guard.commits.wait()
        await given_up(call)
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(0)
        guard.may_end.set()
        await stopping
    assert guard.committed


async def test_what_was_decided_at_entry_is_sent_whatever_the_handler_does() -> None:
    """S4: a handler that swallows everything changes nothing."""

    def behaviour(request: ReserveRequest, context: grpc.ServicerContext) -> ReserveResponse:
        current_step().state.guard = NotingGuard(Refusal(code=ABORTED, text="a copy is running"))
        try:
            raise Decided
        except BaseException:  # noqa: BLE001 - the planted mistake
            return ReserveResponse(reservation_id="made up")

    assert await answer_of_plain(behaviour) == Answer(ABORTED, "a copy is running", {})


def say_no() -> NoReturn:
    """Rejects with another code."""
    raise Rejected("no", code=grpc.StatusCode.NOT_FOUND)


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ([say_no], grpc.StatusCode.NOT_FOUND),
        ([later, say_no, refuse], grpc.StatusCode.NOT_FOUND),
        ([later, later], grpc.StatusCode.UNAVAILABLE),
        ([say_no, fail], grpc.StatusCode.UNKNOWN),
    ],
    ids=["one", "two kinds", "two of one kind", "beside a failure"],
)
async def test_a_refusal_in_a_task_group_is_a_refusal(
    ends: list[Callable[[], NoReturn]], code: grpc.StatusCode
) -> None:
    """S4: a no of one task is the handler's, unless another failed and may have done something."""

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        async with asyncio.TaskGroup() as outer:
            outer.create_task(_side_by_side(ends))
        return ReserveResponse()

    assert (await answer_of(behaviour)).code is code


async def _side_by_side(ends: list[Callable[[], NoReturn]]) -> None:
    async with asyncio.TaskGroup() as group:
        for end in ends:
            group.create_task(_task(end))


async def _task(end: Callable[[], NoReturn]) -> None:
    end()
