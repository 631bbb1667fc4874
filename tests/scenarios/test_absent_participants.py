"""Participants that are down, full, gone or elsewhere: an outage parks nothing, and whoever is back is found."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import pytest

from amends import Committed, Compensated, ParticipantServer, Saga
from amends.v1 import saga_pb2
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.frames import say_nothing, tcp_server
from tests.scenarios.inside import Inside, inside
from tests.scenarios.journal import Journal
from tests.scenarios.oracle import judge
from tests.scenarios.raw import Reply, raw_steps
from tests.scenarios.sagas import QUICK, Do, Undo, steps
from tests.scenarios.steps import ScriptedSteps
from tests.waiting import eventually, pause

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.scenario

BOUND = timedelta(seconds=30)
LOST = Reply(code=grpc.StatusCode.UNAVAILABLE)
NO = Reply(code=grpc.StatusCode.FAILED_PRECONDITION)


async def once(coordinator: Inside, condition: Callable[[saga_pb2.Saga], bool]) -> saga_pb2.Saga:
    """Saga "s", once a condition holds for it; the test's own timeout bounds it."""
    while not condition(saga := await coordinator.client.get("s")):
        await pause()
    return saga


async def closed_port() -> int:
    """A port at which nobody listens."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


@pytest.mark.parametrize("announced", [False, True])
async def test_down_from_the_beginning_and_up_later(tmp_path: Path, *, announced: bool) -> None:
    """L1: nothing was ever sent, nothing is parked, no budget is spent; once it is up the saga commits."""
    port = await closed_port()
    saga = steps("a", "b", timeout=timedelta(minutes=5))
    async with inside(tmp_path) as coordinator:
        if announced:
            await coordinator.announce("raw", f"127.0.0.1:{port}")
        handle = await coordinator.client.start(saga, ScenarioInput(), saga_id="s")
        waiting = await once(coordinator, lambda saga: saga.intents[0].attempt_count > 3)
        assert waiting.state == saga_pb2.Saga.STATE_RUNNING
        assert not waiting.dead_letters
        outcomes = {attempt.outcome for attempt in waiting.intents[0].attempts if attempt.HasField("end_time")}
        assert outcomes == {saga_pb2.OUTCOME_NOT_SENT}
        assert waiting.intents[0].last_error
        async with raw_steps(port=port) as participant:
            await coordinator.announce("raw", participant.address)
            assert isinstance(await handle.wait(BOUND), Committed)
        assert len(participant.calls("a/action")) == 1


async def test_down_for_good_is_bounded_by_the_sagas_timeout(tmp_path: Path) -> None:
    """L1: a saga whose participant never comes ends by its own timeout; what was never sent is owed nothing."""
    async with raw_steps() as participant, inside(tmp_path) as coordinator:
        await coordinator.announce("raw", participant.address)
        await coordinator.announce("gone", f"127.0.0.1:{await closed_port()}")
        saga = Saga("partly", input=ScenarioInput, timeout=timedelta(seconds=1))
        saga.step("a", Do(name="a"), participant="raw").compensated_by(Undo(name="a"))
        saga.step("b", Do(name="b"), participant="gone", retry=QUICK).compensated_by(Undo(name="b"))
        handle = await coordinator.client.start(saga, ScenarioInput(), saga_id="s")
        end = await handle.wait(BOUND)
        assert isinstance(end, Compensated)
        assert not end.unproven
        found = await handle.get()
    assert found.failure.reason == "TIMED_OUT"
    assert [(each.step, each.direction) for each in found.intents] == [
        ("a", saga_pb2.DIRECTION_ACTION),
        ("b", saga_pb2.DIRECTION_ACTION),
        ("a", saga_pb2.DIRECTION_COMPENSATION),
    ]
    assert found.intents[1].state == saga_pb2.Intent.STATE_DROPPED


async def test_a_moved_participant_is_found_at_its_new_address(tmp_path: Path) -> None:
    """Also by the compensations of an old saga, while the lease of the old address still holds."""
    saga = steps("a", "b")
    async with inside(tmp_path) as coordinator:
        async with raw_steps({"b": [LOST]}) as before:
            await coordinator.announce("raw", before.address, instance_id="before")
            handle = await coordinator.client.start(saga, ScenarioInput(), saga_id="s")
            await eventually(lambda: len(before.calls("b/action")) > 0, what="b is called at the old address")
        sealed = Reply(code=NO.code, trailers=(("amends-sealed", "1"),))
        async with raw_steps({"b": [sealed]}) as after:
            await coordinator.announce("raw", after.address, instance_id="after")
            assert isinstance(await handle.wait(BOUND), Compensated)
    assert [seen.side for seen in after.seen] == ["b/action", "a/compensation"]
    assert not before.calls("a/compensation")


async def test_one_of_three_instances_works(tmp_path: Path) -> None:
    """L2: one that is down and one that accepts connections and says nothing hold up nobody."""
    async with raw_steps() as participant, tcp_server(say_nothing) as silent, inside(tmp_path) as coordinator:
        await coordinator.announce("raw", f"127.0.0.1:{await closed_port()}", instance_id="down")
        await coordinator.announce("raw", silent, instance_id="silent")
        await coordinator.announce("raw", participant.address, instance_id="works")
        start, saga = coordinator.client.start, steps("a", "b", attempt_timeout=BOUND)
        handles = await asyncio.gather(*(start(saga, ScenarioInput()) for _ in range(10)))
        ends = await asyncio.gather(*(handle.wait(BOUND) for handle in handles))
        assert all(isinstance(end, Committed) for end in ends)
        counts = {intent.attempt_count for handle in handles for intent in (await handle.get()).intents}
        assert counts == {1}, "none was sent where nobody answers"


async def full(data: Path, *, too_much: bool) -> list[saga_pb2.Saga]:
    """Eight sagas at a participant that takes one call at once, once they have committed. With `too_much` the
    coordinator doesn't know that, as if another one gave it calls too.
    """
    journal = Journal(data / "journal.jsonl")
    (data / "script.json").write_text(json.dumps({"a/action": ["delay:30"]}))
    async with AsyncExitStack() as stack:
        coordinator = await stack.enter_async_context(inside(data))
        server = ParticipantServer("full", coordinator=coordinator.address, capacity=1)
        server.add(ScriptedSteps(journal, data / "script.json"))
        await stack.enter_async_context(server)
        await server.announced()
        if too_much:
            await coordinator.announce("full", f"127.0.0.1:{server.port}", instance_id="takes-any-number")
        start = coordinator.client.start
        handles = await asyncio.gather(*(start(steps("a"), ScenarioInput(), saga_id=f"s-{n}") for n in range(8)))
        ends = await asyncio.gather(*(handle.wait(BOUND) for handle in handles))
        sagas = [await handle.get() for handle in handles]
    assert all(isinstance(end, Committed) for end in ends)
    for saga in sagas:
        judge(saga, journal)
    return sagas


async def test_a_participant_is_not_given_more_than_it_takes(tmp_path: Path) -> None:
    """L2: the others wait for their turn at the coordinator, and every first attempt is the only one."""
    sagas = await full(tmp_path, too_much=False)
    assert [[each.outcome for each in saga.intents[0].attempts] for saga in sagas] == [[saga_pb2.OUTCOME_SUCCEEDED]] * 8


async def test_a_full_participant_says_that_it_did_not_begin(tmp_path: Path) -> None:
    """That counts as not sent: no budget is spent, every saga commits with one effect for each step."""
    sagas = await full(tmp_path, too_much=True)
    outcomes = {attempt.outcome for saga in sagas for attempt in saga.intents[0].attempts}
    assert outcomes == {saga_pb2.OUTCOME_NOT_SENT, saga_pb2.OUTCOME_SUCCEEDED}
