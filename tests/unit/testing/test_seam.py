"""The seam for faults: around every call, around every write, and in the participant just before it commits."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import pytest

from amends import Committed, Compensated, current_step
from amends.participant import Direction, StepKind
from amends.participant.guards import Answer as Stored
from amends.testing import (
    Answer,
    CallSite,
    CoordinatorFailedError,
    CoordinatorKilled,
    CoordinatorStarted,
    Died,
    Heard,
    NoFault,
    Orphans,
    Outcome,
    Rehearsal,
    Replied,
    Written,
    held,
    run,
)
from amends_coordinator.core.ids import NodeId
from scenario.v1.scenario_pb2 import DoRequest, DoResponse, ScenarioInput
from tests.scenarios.sagas import ScenarioSaga, steps
from tests.unit.testing.stage import At, Steps, side_by_side

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from google.protobuf.message import Message

    from amends.testing import WriteSite
    from tests.unit.testing.stage import Context

T = TypeVar("T")

INPUT = ScenarioInput(amount=7)
LOST = Answer(outcome=Outcome.UNKNOWN, status_code="UNAVAILABLE", message="lost")


async def rehearsed(servicer: Steps, fault: NoFault, saga: ScenarioSaga) -> tuple[Rehearsal, object]:
    """A saga, rehearsed to its end with a fault."""
    async with Rehearsal({"steps": [servicer]}, fault=fault) as rehearsal:
        if isinstance(fault, At | Writing):
            fault.rehearsal = rehearsal
        end = await rehearsal.run(saga, INPUT, saga_id="s-1")
    return rehearsal, end


def test_a_site_says_which_call_it_is() -> None:
    """Everything that a fault chooses by."""
    sites: list[CallSite] = []

    class Watching(NoFault):
        async def call(self, site: CallSite, send: Callable[[], Awaitable[Answer]]) -> Answer:
            sites.append(site)
            return await send()

    async def main() -> None:
        await rehearsed(Steps(), Watching(), steps("a"))

    run(main)
    assert sites == [
        CallSite(
            saga_id="s-1",
            step="a",
            direction=Direction.ACTION,
            kind=StepKind.COMPENSATABLE,
            attempt=1,
            method="scenario.v1.StepService/Do",
            participant="steps",
            key="s-1/a/action",
        )
    ]


def test_a_request_that_is_lost() -> None:
    """`send` is never awaited: the handler never hears of it, and the coordinator repeats the call."""
    servicer = Steps()

    async def lose(site: CallSite, send: Callable[[], Awaitable[Answer]]) -> Answer:
        return LOST

    async def main() -> None:
        _, end = await rehearsed(servicer, At("a/action", lose), steps("a"))
        assert isinstance(end, Committed)

    run(main)
    assert [step.attempt for step in servicer.seen] == [2]


def test_a_reply_that_is_lost() -> None:
    """The work is done and the coordinator doesn't know: the same key comes again (S2)."""
    servicer = Steps()

    async def lose(site: CallSite, send: Callable[[], Awaitable[Answer]]) -> Answer:
        await send()
        return LOST

    async def main() -> None:
        await rehearsed(servicer, At("a/action", lose), steps("a"))

    run(main)
    assert [(step.key, step.attempt) for step in servicer.seen] == [("s-1/a/action", 1), ("s-1/a/action", 2)]


def test_a_request_that_is_delivered_twice() -> None:
    """`send` is awaited twice, one after the other or side by side: both copies are one attempt."""
    servicer = Steps()

    async def double(site: CallSite, send: Callable[[], Awaitable[Answer]]) -> Answer:
        first, _ = await asyncio.gather(send(), send())
        await send()
        return first

    async def main() -> None:
        _, end = await rehearsed(servicer, At("a/action", double), steps("a"))
        assert isinstance(end, Committed)

    run(main)
    assert [step.attempt for step in servicer.seen] == [1, 1, 1]


def test_a_request_that_arrives_when_everything_is_over() -> None:
    """`send` in a task of `later`: the handler has all of its time, and nobody hears the answer."""
    servicer, remaining = Steps(refuses={"b"}), list[float | None]()

    class Watching(Steps):
        async def Do(self, request: DoRequest, context: Context) -> DoResponse:
            remaining.append(current_step().time_remaining())
            return await servicer.Do(request, context)

    async def main() -> None:
        async def hold_back(site: CallSite, send: Callable[[], Awaitable[Answer]]) -> Answer:
            async def arrive() -> None:
                await asyncio.sleep(600)
                await send()

            fault.rehearsal.later(arrive())
            return LOST

        fault = At("a/action", hold_back)
        async with Rehearsal({"steps": [Watching()]}, fault=fault) as rehearsal:
            fault.rehearsal = rehearsal
            assert isinstance(await rehearsal.run(steps("a", "b"), INPUT), Compensated)
            await asyncio.sleep(601)
            assert "600.000000  arrives a/action #1" in rehearsal.timeline()

    run(main)
    assert [step.attempt for step in servicer.seen if step.step == "a"] == [2, 1]
    assert remaining == [2.0, 2.0, 2.0]


def test_an_answer_that_is_replaced() -> None:
    """What the fault returns is what the coordinator hears; the timeline shows both."""

    async def ask_to_abort(site: CallSite, send: Callable[[], Awaitable[Answer]]) -> Answer:
        return replace(await send(), abort_reason="no more")

    async def main() -> None:
        rehearsal, end = await rehearsed(Steps(), At("b/action", ask_to_abort), steps("a", "b"))
        assert isinstance(end, Compensated)
        assert "reply   b/action #1 SUCCEEDED OK\n" in rehearsal.timeline()
        assert "heard   b/action #1 SUCCEEDED OK and abort: no more" in rehearsal.timeline()

    run(main)


def test_a_call_that_is_held_back_ends_at_its_deadline() -> None:
    """The coordinator waits no longer for a fault than for a network."""

    async def hold_back(site: CallSite, send: Callable[[], Awaitable[Answer]]) -> Answer:
        await asyncio.sleep(60)
        return await send()

    async def main() -> None:
        rehearsal, end = await rehearsed(Steps(), At("a/action", hold_back), steps("a"))
        assert isinstance(end, Committed)
        heard = [entry for entry in rehearsal.journal if isinstance(entry.what, Heard)]
        assert heard[0].time_s == 2.0

    run(main)


class Writing(NoFault):
    """Kills the coordinator around the first write that satisfies a condition."""

    def __init__(
        self, when: Callable[[WriteSite], bool], *, before: bool, orphans: Orphans = Orphans.CANCELLED
    ) -> None:
        self.rehearsal: Rehearsal
        self._when, self._before, self._orphans = when, before, orphans
        self._struck = False

    async def write(self, site: WriteSite, commit: Callable[[], Awaitable[T]]) -> T:
        """See `Fault`."""
        if self._struck or not self._when(site):
            return await commit()
        self._struck = True
        if self._before:
            self.rehearsal.kill()
            return await commit()
        written = await commit()
        self.rehearsal.kill()
        return written


def announces(step: str) -> Callable[[WriteSite], bool]:
    """Whether a write lets the action of a step begin."""
    return lambda site: any(change.step == step and change.begins for change in site.changes)


def records(step: str) -> Callable[[WriteSite], bool]:
    """Whether a write says that the action of a step succeeded."""
    return lambda site: any(change.step == step and change.state == "SUCCEEDED" for change in site.changes)


@pytest.mark.parametrize(
    ("when", "before", "attempts"),
    [
        pytest.param(announces("b"), True, ["a1", "a2", "b1"], id="before-the-intent"),
        pytest.param(announces("b"), False, ["a1", "b2"], id="after-the-intent"),
        pytest.param(records("b"), True, ["a1", "b1", "b2"], id="before-the-record"),
        pytest.param(records("b"), False, ["a1", "b1"], id="after-the-record"),
    ],
)
def test_a_coordinator_that_is_killed_around_a_write(
    when: Callable[[WriteSite], bool], before: bool, attempts: list[str]
) -> None:
    """S1, S2, S7: a killed one writes nothing more; the next one takes the saga up from what is durable, after the
    lease.
    """
    servicer = Steps()

    async def main() -> None:
        rehearsal, end = await rehearsed(servicer, Writing(when, before=before), steps("a", "b"))
        assert isinstance(end, Committed)
        starts = [entry for entry in rehearsal.journal if isinstance(entry.what, CoordinatorStarted)]
        assert [(entry.time_s, str(entry.what)) for entry in starts] == [
            (0.0, "start   coordinator node-1"),
            (15.0, "start   coordinator node-2"),
        ]
        (killed,) = (at for at, entry in enumerate(rehearsal.journal) if isinstance(entry.what, CoordinatorKilled))
        after = [entry for entry in rehearsal.journal[killed:] if isinstance(entry.what, Written)]
        assert all(entry.time_s >= 15 for entry in after)

    run(main)
    assert [f"{step.step}{step.attempt}" for step in servicer.seen] == attempts


@pytest.mark.parametrize(("orphans", "done"), [(Orphans.CANCELLED, ["a"]), (Orphans.RUN_ON, ["a", "a"])])
def test_what_a_killed_coordinator_has_called(orphans: Orphans, done: list[str]) -> None:
    """Its handlers are cancelled, since their connection breaks, or run to their end, since they don't hear of it."""

    class Slow(Steps):
        async def Do(self, request: DoRequest, context: Context) -> DoResponse:
            await asyncio.sleep(1)
            return await super().Do(request, context)

    servicer = Slow()

    async def main() -> None:
        async def kill(site: CallSite, send: Callable[[], Awaitable[Answer]]) -> Answer:
            asyncio.get_running_loop().call_later(0.5, lambda: fault.rehearsal.kill(orphans=orphans))
            return await send()

        fault = At("a/action", kill)
        rehearsal, end = await rehearsed(servicer, fault, steps("a"))
        assert isinstance(end, Committed)
        replies = [entry.what.answer for entry in rehearsal.journal if isinstance(entry.what, Replied)]
        assert (replies[0] is None) == (orphans is Orphans.CANCELLED)

    run(main)
    assert servicer.done == done


def test_a_fault_with_a_fault_is_told() -> None:
    """What a fault raises by mistake is no answer of a participant, and nobody takes it for one."""

    async def slip(site: CallSite, send: Callable[[], Awaitable[Answer]]) -> Answer:
        raise LookupError("a slip of the author's")

    async def main() -> None:
        await rehearsed(Steps(), At("a/action", slip), steps("a"))

    with pytest.raises(CoordinatorFailedError, match=r"the fault raised LookupError\(\"a slip of the author's\"\)"):
        run(main)


def test_a_coordinator_that_does_not_come_back_is_told() -> None:
    """Whoever waits for a saga hears at once that nothing will ever happen to it."""

    async def main() -> None:
        async with Rehearsal({"steps": [Steps()]}) as rehearsal:
            handle = await rehearsal.client.start(steps("a"), INPUT)
            rehearsal.kill()
            rehearsal._store.holder = NodeId("other")  # pyright: ignore[reportPrivateUsage] - the planted fault
            await rehearsal.settled(handle.saga_id)

    with pytest.raises(CoordinatorFailedError, match=r"the coordinator failed: LedgerLockedError"):
        run(main)


def test_a_client_lives_through_the_death_of_its_coordinator() -> None:
    """While there is none its calls are repeated, as over a network, and no saga is begun twice (S9)."""

    async def main() -> None:
        async with Rehearsal({"steps": [Steps()]}) as rehearsal:
            rehearsal.kill(restart_after=timedelta(seconds=3))
            rehearsal.kill()  # there is none any more
            handle = await rehearsal.client.start(steps("a"), INPUT, saga_id="s-1")
            assert isinstance(await handle.wait(), Committed)
            assert 3 < asyncio.get_running_loop().time() < 8

    run(main)


class Holding(Steps):
    """Its first call holds something of its process until it is cancelled, and takes a moment to let go of it."""

    held = False

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()

    async def Do(self, request: DoRequest, context: Context) -> DoResponse:
        """An action."""
        self.seen.append(current_step())
        if len(self.seen) == 1:
            Holding.held = True
            self.begun.set()
            try:
                with held():
                    await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                Holding.held = False
        return DoResponse(effect_id="e-1")


def test_a_process_begins_when_the_one_before_it_has_ended() -> None:
    """L1: what a dead process had locked is free when the next one starts, as it is where processes are real; a world
    that opens its database then would wait on the loop for a handler that needs the loop.
    """
    began_with: list[bool] = []

    def processes() -> dict[str, list[Steps]]:
        began_with.append(Holding.held)
        return {"steps": [Steps()]}

    async def main() -> None:
        async with Rehearsal({"steps": [first := Holding()]}, restarted=processes) as rehearsal:
            handle = await rehearsal.client.start(steps("a"), INPUT)
            await first.begun.wait()
            await rehearsal.restart("steps")
            assert isinstance(await handle.wait(), Committed)

    run(main)
    assert began_with == [False]


class Guarding(Steps):
    """Guards its actions as the barrier does, without a database: what is true is in `done`."""

    async def Do(self, request: DoRequest, context: Context) -> DoResponse:
        """An action."""
        self.seen.append(current_step())
        current_step().state.guard = Work(self, request.name)
        return DoResponse(effect_id=f"e-{request.name}")


class Work:
    """The guard of one call."""

    verdict = None

    def __init__(self, servicer: Steps, name: str) -> None:
        self._servicer, self._name = servicer, name

    async def returned(self, response: Message, *, abort_reason: bytes | None) -> Stored:
        """See `Guard`."""
        self._servicer.done.append(self._name)
        return Stored(response=response.SerializeToString(), abort_reason=abort_reason)

    async def raised(self, fault: BaseException) -> None:
        """See `Guard`."""
        self._servicer.done.append(f"{self._name} rolled back")


def test_a_participant_that_dies_before_it_commits() -> None:
    """Nothing of what the handler did becomes true, the coordinator gets no answer, and repeats the call."""
    servicer = Guarding()

    class Dying(NoFault):
        def commit(self, site: CallSite) -> None:
            if site.attempt == 1:
                raise RuntimeError("dies here")

    async def main() -> None:
        rehearsal, end = await rehearsed(servicer, Dying(), steps("a"))
        assert isinstance(end, Committed)
        assert any(isinstance(entry.what, Died) for entry in rehearsal.journal)
        heard = [entry.what.answer for entry in rehearsal.journal if isinstance(entry.what, Heard)]
        assert [answer.outcome for answer in heard if answer is not None] == [Outcome.UNKNOWN, Outcome.SUCCEEDED]

    run(main)
    assert servicer.done == ["a rolled back", "a"]


def test_a_process_that_dies_takes_everything_with_it() -> None:
    """Whatever else it was doing ends, too, and so does what it had in memory; another process is there at once."""
    cancelled: list[str] = []

    class Waiting(Guarding):
        async def Do(self, request: DoRequest, context: Context) -> DoResponse:
            if request.name == "b" and current_step().attempt == 1:
                try:
                    await asyncio.sleep(1)
                except asyncio.CancelledError:
                    cancelled.append(request.name)
                    raise
            elif current_step().attempt == 1:
                await asyncio.sleep(0.5)
            return await super().Do(request, context)

    class Dying(NoFault):
        def commit(self, site: CallSite) -> None:
            if site.attempt == 1:
                raise RuntimeError("dies here")

    servicer = Waiting()

    async def main() -> None:
        _, end = await rehearsed(servicer, Dying(), side_by_side("a", "b"))
        assert isinstance(end, Committed)

    run(main)
    assert cancelled == ["b"]
    assert sorted(servicer.done) == ["a", "a rolled back", "b"]
