"""What others write past a saga's driver: it hears of it while it drives the saga, and of nothing once it lets go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from amends_coordinator.core.ids import SagaId
from amends_coordinator.core.states import SagaState
from amends_coordinator.ledger.memory import MemoryLedger
from amends_coordinator.ports.driving import Person
from tests.unit.engine.rig import rig, succeed

if TYPE_CHECKING:
    from amends_coordinator.core.answer import Answer
    from amends_coordinator.core.saga import Failure
    from amends_coordinator.ports.ledger import NewSaga, Started
    from amends_coordinator.ports.participants import CallRequest
    from amends_coordinator.ports.repairs import AbortAnswer, AuditEntry

SOMEBODY = Person(actor="unauthenticated:test", claimed_actor="ada", reason="a test")
BOUND_S = 8.0
"""Well before the driver looks at its call again by itself."""

TURNS = 50
"""How often the event loop gets round before nothing more is expected."""


async def test_a_driver_that_lets_go_begins_nothing_more() -> None:
    """S7, L1: an abort that is written while a driver lets go of its saga is for whoever drives it next."""
    begun = asyncio.Event()

    async def answer(request: CallRequest) -> Answer:
        if request.step == "a":
            return await succeed(request)
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert await stage.engine.verbs.abort(SagaId("s"), SOMEBODY) is not None
        raise AssertionError("it is only ever cancelled")

    async with rig(MemoryLedger(), answer=answer, abort_grace_s=0.0) as stage:
        await stage.start("s", "a", "b")
        await begun.wait()
        await stage.engine.stop(0.0)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert stage.participants.sides("s") == ["a/action#1", "b/action#1"]
        stored = await stage.ledger.load(SagaId("s"))
        assert stored is not None
        assert stored.saga.abort_requested


class SlowToAnswer(MemoryLedger):
    """Holds back the answer to an abort that it has written."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.gate = asyncio.Event(), asyncio.Event()

    async def request_abort(self, saga_id: SagaId, *, failure: Failure, audit: AuditEntry) -> AbortAnswer | None:
        """See the port."""
        answer = await super().request_abort(saga_id, failure=failure, audit=audit)
        self.written.set()
        await self.gate.wait()
        return answer


class SlowToTell(MemoryLedger):
    """Holds back the answer to a start that it has written; one that finds the saga there is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.gate = asyncio.Event(), asyncio.Event()

    async def start(self, new: NewSaga) -> Started:
        """See the port."""
        started = await super().start(new)
        if started.started:
            self.written.set()
            await self.gate.wait()
        return started


@pytest.mark.parametrize("again", [False, True], ids=["", "although the start is repeated"])
async def test_an_abort_that_overtakes_the_answer_to_the_start_is_heard(*, again: bool) -> None:
    """S10: what was written before there was a driver is acted on as soon as there is one, not when its call ends."""

    async def answer(request: CallRequest) -> Answer:
        await asyncio.Event().wait()
        return await succeed(request)

    ledger = SlowToTell()
    async with rig(ledger, answer=answer, abort_grace_s=0.0) as stage:
        starting = asyncio.create_task(stage.start("s", "a"))
        await ledger.written.wait()
        assert not again or not (await stage.start("s", "a")).started
        assert await stage.engine.verbs.abort(SagaId("s"), SOMEBODY) is not None
        ledger.gate.set()
        assert (await starting).started
        async with asyncio.timeout(BOUND_S / 2):
            await stage.end("s")


async def test_a_client_that_goes_away_has_its_abort_heard_all_the_same() -> None:
    """S10, F10: what was written is acted on at once, whoever still waits for the answer."""
    begun = asyncio.Event()

    async def answer(request: CallRequest) -> Answer:
        if request.method.endswith("Do"):
            begun.set()
            await asyncio.Event().wait()
        return await succeed(request)

    ledger = SlowToAnswer()
    async with rig(ledger, answer=answer, abort_grace_s=0.0) as stage:
        await stage.start("s", "a")
        await begun.wait()
        asking = asyncio.create_task(stage.engine.verbs.abort(SagaId("s"), SOMEBODY))
        await ledger.written.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        ledger.gate.set()
        async with asyncio.timeout(BOUND_S):
            end = await stage.end("s")
        assert end.saga.state is SagaState.COMPENSATION_FAILED, "its answer never came, and the undo needs it"
        assert stage.participants.sides("s") == ["a/action#1"]
