"""What a step's handler publishes: with its work, once, and never without it; through a real server."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import grpc
import pytest
import pytest_asyncio
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import StringValue
from opentelemetry import context as telemetry_context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context
from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session

from amends import ParticipantServer, Rejected, barrier, current_step
from amends.outbox import MemoryPublisher, OutboxUseError, Relay, publish
from amends.outbox.tables import OUTBOX
from tests.conformance.barrier import stage as barred
from tests.conformance.outbox.rigs import QUICK, Rig, texts
from timeline.v1 import timeline_pb2 as pb


@pytest_asyncio.fixture
async def stage(rig: Rig) -> AsyncIterator[barred.Stage]:
    """A participant with a barrier, served, whose handlers do what a test says."""
    barred.make_tables(rig.sync_engine)
    plain = rig.sessions is rig.sync_sessions
    async with barred.rig_at(rig.url, plain=plain) as behind, barred.staged(behind) as stage:
        yield stage
    await rig.alter(*(delete(table) for table in (*barrier.TABLES.sorted_tables, barred.EFFECTS)))


def placed(session: Session) -> Message:
    """An action that does its work and tells of it."""
    response = barred.write_effect(session)
    publish("orders", current_step().saga_id, StringValue(value="placed"))
    return response


async def test_a_handler_publishes_with_its_work(rig: Rig, stage: barred.Stage) -> None:
    """O1: work, response and event are there together, and the event says of which saga and step it is."""
    stage.handlers.do = placed
    publisher = MemoryPublisher()
    async with Relay(rig.sessions, publisher, QUICK):
        answer = await stage.do(barred.Step(saga_id="order-1"))
        (event,) = await publisher.received(1)
    assert answer.code is grpc.StatusCode.OK
    assert (event.saga_id, event.step, event.key, texts([event])) == ("order-1", "do", "order-1", ["placed"])
    assert stage.rig.effects() == ["order-1"]


async def test_a_repeated_call_publishes_nothing_more(rig: Rig, stage: barred.Stage) -> None:
    """O1: a call that is answered from the barrier's row tells of nothing that happened anew."""
    stage.handlers.do = placed
    for _ in range(3):
        await stage.do(barred.Step(saga_id="order-1"))
    assert rig.written() == [("order-1", "placed")]


@pytest.mark.parametrize("fault", [Rejected, LookupError])
async def test_a_handler_that_fails_published_nothing(
    rig: Rig, stage: barred.Stage, fault: type[BaseException]
) -> None:
    """O1: neither a refusal nor an error leaves an event behind."""

    def fail(session: Session) -> Message:
        placed(session)
        raise fault("card declined")

    stage.handlers.do = fail
    answer = await stage.do(barred.Step(saga_id="order-1"))
    assert answer.code is not grpc.StatusCode.OK
    assert rig.written() == []


async def test_a_savepoint_of_a_handler(rig: Rig, stage: barred.Stage) -> None:
    """O1: what a handler tried and took back it did not publish, although the call succeeds."""

    def try_twice(session: Session) -> Message:
        attempt = session.begin_nested()
        publish("orders", "a", StringValue(value="taken back"))
        attempt.rollback()
        publish("orders", "a", StringValue(value="stays"))
        return placed(session)

    stage.handlers.do = try_twice
    assert (await stage.do(barred.Step(saga_id="order-1"))).code is grpc.StatusCode.OK
    assert rig.written() == [("a", "stays"), ("order-1", "placed")]


async def test_a_compensation_publishes_too(rig: Rig, stage: barred.Stage) -> None:
    """O1, O3: the event of a compensation follows that of its action; a null compensation publishes nothing."""

    def cancelled(session: Session) -> Message:
        publish("orders", current_step().saga_id, StringValue(value="cancelled"))
        return barred.take_effect_out(session)

    stage.handlers.do, stage.handlers.undo = placed, cancelled
    step = barred.Step(saga_id="order-1")
    await stage.undo(barred.Step(saga_id="order-0"))
    await stage.do(step)
    await stage.undo(step)
    await stage.undo(step)
    assert rig.written() == [("order-1", "placed"), ("order-1", "cancelled")]


class Telling(barred.AsyncBarred):
    """Its action is an effect outside of the database, of which it tells; the first time it breaks off after that. So
    does its lookup, which may be the one that hears of it.
    """

    def __init__(self, sessions: async_sessionmaker[AsyncSession]) -> None:
        super().__init__(barred.Handlers(), sessions)
        self.sessions = sessions
        self.breaks = [ConnectionResetError("the provider's answer was lost")]

    async def Do(self, request: pb.DoRequest, context: barred.AsyncContext) -> pb.DoResponse:
        async with barrier.effect(self.sessions) as effect:
            publish("payments", effect.key, StringValue(value="authorized"))
            if self.breaks:
                raise self.breaks.pop()
            return pb.DoResponse(effect_id="1")

    async def Find(self, request: pb.FindRequest, context: barred.AsyncContext) -> pb.DoResponse:
        async with barrier.effect(self.sessions) as effect:
            publish("payments", effect.action_key, StringValue(value="authorized"))
            return pb.DoResponse(effect_id="1")


@pytest.mark.parametrize("rig", ["sqlite-async", "postgresql-async"], indirect=True)
@pytest.mark.parametrize("heard_of_by", ["action", "lookup"])
async def test_an_effect_publishes_once_it_is_done(rig: Rig, heard_of_by: str) -> None:
    """O1: what a handler below `barrier.effect` publishes is written with its response: not before, and once, whichever
    call writes that down.
    """
    barred.make_tables(rig.sync_engine)
    server = ParticipantServer("barred", coordinator=barred.NO_COORDINATOR, stop_grace_s=0)
    server.add(Telling(rig.async_sessions))
    step = barred.Step(saga_id="order-1")
    async with (
        barred.rig_at(rig.url, plain=True) as behind,
        server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        stage = barred.called(behind, channel)
        assert (await stage.do(step)).code is grpc.StatusCode.UNKNOWN
        assert rig.written() == []
        if heard_of_by == "lookup":
            assert (await stage.find(step)).effect_id == "1"
        for _ in range(2):
            assert (await stage.do(step)).effect_id == "1"
        assert (await stage.find(step)).effect_id == "1"
    assert rig.written() == [("order-1/do/action", "authorized")]
    await rig.alter(*(delete(table) for table in barrier.TABLES.sorted_tables))


async def test_an_event_carries_the_trace(rig: Rig) -> None:
    """An event continues the trace in which it was published."""
    span = SpanContext(
        0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, is_remote=False, trace_flags=TraceFlags(1)
    )
    token = telemetry_context.attach(set_span_in_context(NonRecordingSpan(span)))
    try:
        await rig.publish("a", "traced")
    finally:
        telemetry_context.detach(token)
    with rig.sync_sessions() as session:
        headers = session.execute(select(OUTBOX.c.headers)).scalar_one()
    assert headers == {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


def test_outside_of_a_transaction() -> None:
    """O1: where there is nothing to publish with, a sentence says what to do."""
    with pytest.raises(
        OutboxUseError, match=re.escape("inside a handler's barrier.transaction or barrier.effect block")
    ):
        publish("orders", "a", StringValue())
