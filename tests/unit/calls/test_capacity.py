"""How many calls an instance gets at once, and what becomes of those that wait, over real gRPC."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc

from amends_coordinator.calls.unary import UnaryParticipants
from amends_coordinator.core.ids import IdempotencyKey, Instant, SagaId, StepName
from amends_coordinator.core.states import Direction, Outcome, StepKind
from amends_coordinator.ports.ledger import InstanceRow
from amends_coordinator.ports.participants import FULL, CallRequest
from amends_coordinator.system import SystemClock
from tests.waiting import eventually, pause

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from amends_coordinator.core.answer import Answer

LONG_US = 20_000_000
SHORT_US = 300_000


@dataclass(slots=True)
class Directory:
    """Whoever is in the list serves everything."""

    rows: list[InstanceRow] = field(default_factory=list[InstanceRow])
    left: set[str] = field(default_factory=set[str])
    """Services that nobody serves any more."""

    def serving(self, service: str) -> Sequence[str]:
        """See the port."""
        assert service
        return sorted({row.participant for row in self.rows})

    def may_serve(self, participant: str, service: str) -> bool:
        """See the port."""
        return participant in self.serving(service)

    def instances(self, *, service: str, participant: str) -> Sequence[InstanceRow]:
        """See the port."""
        return [row for row in self.rows if participant in ("", row.participant) and service not in self.left]

    def add(self, instance_id: str, address: str, *, capacity: int, participant: str = "desk") -> None:
        """Announce an instance."""
        self.rows.append(
            InstanceRow(
                participant=participant,
                instance_id=instance_id,
                address=address,
                capacity=capacity,
                lease_end_time=Instant(2**60),
            )
        )


@dataclass(slots=True)
class Desk:
    """A server whose every call stays until the door opens."""

    address: str = ""
    door: asyncio.Event = field(default_factory=asyncio.Event)
    begun: list[str] = field(default_factory=list[str])
    remaining_s: list[float] = field(default_factory=list[float])
    at_once: int = 0
    most_at_once: int = 0

    async def answer(self, _: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        """Serve one call."""
        metadata = {key: value for key, value in context.invocation_metadata() or ()}  # noqa: C416 - `dict` would take it for a mapping
        self.begun.append(str(metadata["amends-saga-id"]))
        self.remaining_s.append(context.time_remaining())
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.door.wait()
        finally:
            self.at_once -= 1
        return b""

    def has_begun(self, count: int) -> bool:
        """Whether so many calls came in."""
        return len(self.begun) >= count


@asynccontextmanager
async def listening(desk: Desk) -> AsyncGenerator[Desk]:
    """Let a desk listen."""

    class Everything(grpc.GenericRpcHandler):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
            return grpc.unary_unary_rpc_method_handler(desk.answer)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Everything(),))
    desk.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield desk
    finally:
        await server.stop(0)


@asynccontextmanager
async def calling(directory: Directory) -> AsyncGenerator[UnaryParticipants]:
    """What is under test."""
    participants = UnaryParticipants(
        directory=directory, clock=SystemClock(), ledger_name="test", payload_limit_bytes=1 << 20, connect_gate_s=10
    )
    try:
        yield participants
    finally:
        await participants.close()


def _whatever(_: bytes) -> bool:
    """Every response parses."""
    return True


def request(
    name: str,
    *,
    direction: Direction = Direction.ACTION,
    participant: str = "desk",
    service: str = "desk.Desk",
    timeout_us: int = LONG_US,
    saga_deadline_time: Instant | None = None,
) -> CallRequest:
    """A call of the saga of this name."""
    now = SystemClock().now()
    return CallRequest(
        saga_id=SagaId(name),
        step=StepName("serve"),
        direction=direction,
        kind=StepKind.COMPENSATABLE,
        method=f"{service}/Serve",
        participant=participant,
        key=IdempotencyKey(f"{name}/serve/{direction.value.lower()}"),
        attempt=1,
        request=b"",
        timeout_us=timeout_us,
        deadline_time=Instant(now + timeout_us),
        step_time=now,
        action_key=None,
        action_participant=None,
        traceparent="",
        tracestate="",
        parses=_whatever,
        saga_deadline_time=saga_deadline_time,
    )


def calls(participants: UnaryParticipants, *requests: CallRequest) -> list[asyncio.Task[Answer]]:
    """Make calls, in this order."""
    return [asyncio.create_task(participants.call(each)) for each in requests]


async def waiting(participants: UnaryParticipants, desk: Desk, *requests: CallRequest) -> list[asyncio.Task[Answer]]:
    """Make calls that find the desk full, and let them reach its queue in this order."""
    made: list[asyncio.Task[Answer]] = []
    for each in requests:
        made += calls(participants, each)
        await pause()
    assert not any(str(each.saga_id) in desk.begun for each in requests)
    return made


async def test_an_instance_is_never_given_more_than_it_states() -> None:
    """L2: thirty calls at an instance that takes three: three at once, all of them served, in the order of their
    coming.
    """
    directory = Directory()
    async with listening(Desk()) as desk, calling(directory) as participants:
        directory.add("1", desk.address, capacity=3)
        made = calls(participants, *(request(f"s-{n:02}") for n in range(3)))
        await eventually(lambda: desk.has_begun(3), what="three are under way")
        made += await waiting(participants, desk, *(request(f"s-{n:02}") for n in range(3, 30)))
        desk.door.set()
        answers = await asyncio.gather(*made)
    assert {answer.outcome for answer in answers} == {Outcome.SUCCEEDED}
    assert desk.most_at_once == 3
    assert sorted(desk.begun) == [f"s-{n:02}" for n in range(30)]
    places = [abs(place - int(name.removeprefix("s-"))) for place, name in enumerate(desk.begun)]
    assert max(places) < 3, "those side by side may overtake each other on their way, nobody else"


async def test_a_process_that_is_back_at_its_address_is_given_no_more() -> None:
    """L2: it was killed, so what it announced before is still there beside what it announces now."""
    directory = Directory()
    async with listening(Desk()) as desk, calling(directory) as participants:
        directory.add("killed", desk.address, capacity=2)
        directory.add("back", desk.address, capacity=2)
        made = calls(participants, *(request(f"s-{n}") for n in range(2)))
        await eventually(lambda: desk.has_begun(2), what="it is full")
        made += await waiting(participants, desk, *(request(f"s-{n}") for n in range(2, 6)))
        desk.door.set()
        await asyncio.gather(*made)
    assert desk.most_at_once == 2


async def test_who_states_nothing_gets_any_number() -> None:
    """Without a stated capacity nothing waits."""
    directory = Directory()
    async with listening(Desk()) as desk, calling(directory) as participants:
        directory.add("1", desk.address, capacity=0)
        made = calls(participants, *(request(f"s-{n}") for n in range(40)))
        await eventually(lambda: desk.at_once == 40, what="all are under way together")
        desk.door.set()
        await asyncio.gather(*made)


async def test_a_full_instance_does_not_keep_others_waiting() -> None:
    """L2: calls go to the instance that has room; and to one that comes while they wait."""
    directory = Directory()
    async with (
        listening(Desk()) as hung,
        listening(Desk()) as other,
        listening(Desk()) as late,
        calling(directory) as participants,
    ):
        directory.add("1", hung.address, capacity=1)
        made = calls(participants, request("s-0"))
        await eventually(lambda: hung.at_once == 1, what="the first is full")
        directory.add("2", other.address, capacity=2)
        made += calls(participants, *(request(f"s-{n}") for n in range(1, 3)))
        await eventually(lambda: other.at_once == 2, what="the second has taken the others")
        made += await waiting(participants, hung, request("s-3"))
        directory.add("3", late.address, capacity=1)
        await eventually(lambda: late.at_once == 1, what="the third has taken the one that waited")
        for desk in (hung, other, late):
            desk.door.set()
        answers = await asyncio.gather(*made)
    assert {answer.outcome for answer in answers} == {Outcome.SUCCEEDED}
    assert (hung.begun, late.begun) == (["s-0"], ["s-3"])


async def test_participants_have_queues_of_their_own() -> None:
    """L2: who waits for one participant holds up nobody who calls another."""
    directory = Directory()
    async with listening(Desk()) as hung, listening(Desk()) as other, calling(directory) as participants:
        directory.add("1", hung.address, capacity=1, participant="hung")
        directory.add("1", other.address, capacity=1, participant="other")
        made = calls(participants, request("s-0", participant="hung"))
        await eventually(lambda: hung.at_once == 1, what="it is full")
        made += await waiting(participants, hung, *(request(f"s-{n}", participant="hung") for n in range(1, 5)))
        other.door.set()
        (answer,) = await asyncio.gather(*calls(participants, request("t", participant="other")))
        assert answer.outcome is Outcome.SUCCEEDED
        for task in made:
            task.cancel()
        await asyncio.gather(*made, return_exceptions=True)


async def test_what_ends_something_goes_before_what_begins() -> None:
    """Compensations and lookups come before actions, each in their order."""
    directory = Directory()
    async with listening(Desk()) as desk, calling(directory) as participants:
        directory.add("1", desk.address, capacity=1)
        made = calls(participants, request("first"))
        await eventually(lambda: desk.has_begun(1), what="it is full")
        made += await waiting(
            participants,
            desk,
            request("action-1"),
            request("undo-1", direction=Direction.COMPENSATION),
            request("action-2"),
            request("find-2", direction=Direction.LOOKUP),
        )
        desk.door.set()
        await asyncio.gather(*made)
    assert desk.begun == ["first", "undo-1", "find-2", "action-1", "action-2"]


async def test_waiting_for_a_slot_is_bounded_and_counts_as_not_sent() -> None:
    """L1: after its own timeout a call that found no slot is not sent, in a sentence; nothing of it has arrived, and it
    takes nobody's slot.
    """
    directory = Directory()
    async with listening(Desk()) as desk, calling(directory) as participants:
        directory.add("1", desk.address, capacity=1)
        made = calls(participants, request("s-0"))
        await eventually(lambda: desk.has_begun(1), what="it is full")
        soon = Instant(SystemClock().now() + SHORT_US)
        for late in (request("late-1", timeout_us=SHORT_US), request("late-2", saga_deadline_time=soon)):
            answer = await participants.call(late)
            assert (answer.outcome, answer.status_code, answer.reason) == (Outcome.NOT_SENT, "", FULL)
            assert "desk is full: it takes 1 calls at once" in answer.message
        desk.door.set()
        made += calls(participants, request("s-1"))
        await asyncio.gather(*made)
    assert desk.begun == ["s-0", "s-1"]


async def test_the_deadline_of_a_call_that_waited_begins_when_it_is_sent() -> None:
    """L2: however long the others take, a call has its whole timeout; only the saga's own deadline stays."""
    directory = Directory()
    async with listening(Desk()) as desk, calling(directory) as participants:
        directory.add("1", desk.address, capacity=1)
        made = calls(participants, request("s-0"))
        await eventually(lambda: desk.has_begun(1), what="it is full")
        timeout_us, waited_us = 4_000_000, 300_000
        now = SystemClock().now()
        made += await waiting(
            participants,
            desk,
            request("s-1", timeout_us=timeout_us),
            request("s-2", timeout_us=timeout_us, saga_deadline_time=Instant(now + timeout_us)),
        )
        await eventually(lambda: SystemClock().now() > now + waited_us, what="time has passed")
        desk.door.set()
        await asyncio.gather(*made)
    whole, rest = desk.remaining_s[1:]
    assert whole > (timeout_us - waited_us / 2) / 1e6
    assert rest < (timeout_us - waited_us / 2) / 1e6


async def test_a_call_that_is_cancelled_while_it_waits_takes_no_slot_along() -> None:
    """L2: also not when its turn comes in that very moment."""
    directory = Directory()
    async with listening(Desk()) as desk, calling(directory) as participants:
        directory.add("1", desk.address, capacity=1)
        (first,) = calls(participants, request("s-0"))
        await eventually(lambda: desk.has_begun(1), what="it is full")
        gone, next_one, last = await waiting(participants, desk, request("s-1"), request("s-2"), request("s-3"))
        gone.cancel()
        first.add_done_callback(lambda _: next_one.cancel())
        desk.door.set()
        answers = await asyncio.gather(first, gone, next_one, last, return_exceptions=True)
        (after,) = await asyncio.gather(*calls(participants, request("s-4")))
    assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [False, True, True, False]
    assert after.outcome is Outcome.SUCCEEDED
    assert desk.begun == ["s-0", "s-3", "s-4"]


async def test_what_is_not_wanted_any_more_waits_no_longer() -> None:
    """L2, S4: it ends at once as not sent, its place goes to the next one; one that has its slot already goes on."""
    directory = Directory()
    async with listening(Desk()) as desk, calling(directory) as participants:
        directory.add("1", desk.address, capacity=1)
        (first,) = calls(participants, request("s-0"))
        await eventually(lambda: desk.has_begun(1), what="it is full")
        gone, last = await waiting(participants, desk, request("s-1"), request("s-2"))
        for name in ("s-0", "s-1", "s-1", "s-3"):
            participants.withdraw(request(name).key)
        answer = await gone
        assert (answer.outcome, answer.reason) == (Outcome.NOT_SENT, FULL)
        desk.door.set()
        answers = await asyncio.gather(first, last)
    assert {answer.outcome for answer in answers} == {Outcome.SUCCEEDED}
    assert desk.begun == ["s-0", "s-2"]


async def test_nobody_waits_behind_a_call_that_nobody_serves_any_more() -> None:
    """L2: a participant stops serving one of its services: what waits for that one is told so, the others go on."""
    directory = Directory()
    async with listening(Desk()) as desk, calling(directory) as participants:
        directory.add("1", desk.address, capacity=1)
        (first,) = calls(participants, request("s-0"))
        await eventually(lambda: desk.has_begun(1), what="it is full")
        gone, behind = await waiting(
            participants, desk, request("s-1", service="desk.Former"), request("s-2", timeout_us=2 * LONG_US)
        )
        directory.left.add("desk.Former")
        desk.door.set()
        answers = await asyncio.wait_for(asyncio.gather(first, gone, behind), LONG_US / 2e6)
    assert [answer.outcome for answer in answers] == [Outcome.SUCCEEDED, Outcome.NOT_SENT, Outcome.SUCCEEDED]
    assert answers[1].message.startswith("participant desk doesn't serve desk.Former just now")
    assert desk.begun == ["s-0", "s-2"]
