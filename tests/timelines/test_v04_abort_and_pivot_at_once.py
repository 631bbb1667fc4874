"""V4: an abort arrives between a step's record and the pivot's intent: one decision, which waits for the same batch."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest

from amends import Saga
from amends_coordinator.core.ids import SagaId
from amends_coordinator.core.states import SagaState
from amends_coordinator.core.verbs import VerbRefusedError
from amends_coordinator.ledger.factory import dialect_of, sqlite_file
from amends_coordinator.ledger.sql import SqlLedger
from amends_coordinator.ports.driving import Person, StartRequest
from amends_coordinator.system import SystemClock
from scenario.v1.scenario_pb2 import ScenarioInput, ScenarioOutput
from tests.scenarios.outside import writes_blocked
from tests.scenarios.sagas import Do, ScenarioSaga, Undo
from tests.unit.engine.rig import Rig, rig, stored, succeed
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Generator

    from amends_coordinator.core.answer import Answer
    from amends_coordinator.core.saga import Failure
    from amends_coordinator.ports.ledger import Write
    from amends_coordinator.ports.participants import CallRequest
    from amends_coordinator.ports.repairs import AbortAnswer, AuditEntry

pytestmark = pytest.mark.timeline

S = SagaId("s")
ADA = Person(actor="test", claimed_actor="ada", reason="the customer left")


class CountingLedger(SqlLedger):
    """The real ledger, which tells what is on its way into it."""

    decisions = 0
    aborts = 0
    held_back: asyncio.Event | None = None
    """Decisions don't reach the ledger before it is set."""

    async def append(self, write: Write) -> int:
        """See the port."""
        self.decisions += 1
        if self.held_back is not None:
            await self.held_back.wait()
        return await super().append(write)

    async def request_abort(self, saga_id: SagaId, *, failure: Failure, audit: AuditEntry) -> AbortAnswer | None:
        """See the port."""
        self.aborts += 1
        return await super().request_abort(saga_id, failure=failure, audit=audit)


@contextmanager
def nothing_gets_through(ledger_url: str) -> Generator[None]:
    """The ledger's writer is held up meanwhile, so that what is sent to it waits together."""
    file = sqlite_file(ledger_url)
    if file is not None:
        with writes_blocked(file):
            yield
        return
    with psycopg.connect(ledger_url) as connection:
        connection.execute("SELECT node_id FROM node FOR UPDATE")
        yield
        connection.rollback()


def definition() -> ScenarioSaga:
    """A step, then the pivot."""
    saga: ScenarioSaga = Saga("v04", input=ScenarioInput, output=ScenarioOutput)
    saga.step("a", Do(name="a")).compensated_by(Undo(name="a"), by_key=True)
    pivot = saga.pivot("p", Do(name="p"))
    saga.output(ScenarioOutput)(effect_id=pivot.response.effect_id)
    return saga


async def abort(stage: Rig) -> bool:
    """Whether an abort is accepted."""
    try:
        await stage.engine.verbs.abort(S, ADA)
    except VerbRefusedError:
        return False
    return True


async def test_v04_an_abort_between_the_decision_and_its_write(ledger_url: str) -> None:
    """S6, S10: a decision that announces the pivot was made before the abort and is written after it: the abort stands,
    the decision is made again, and the pivot is never called.
    """
    ledger = CountingLedger(dialect_of(ledger_url))
    async with rig(ledger) as stage:
        kept = await ledger.put_definition(stored(definition()))
        ledger.held_back = asyncio.Event()
        await stage.engine.start(StartRequest(saga_id=S, definition=kept, input=b""))
        await eventually(lambda: ledger.decisions == 1, what="the decision about the pivot is made")
        assert await abort(stage)
        ledger.held_back.set()
        end = (await stage.end(S)).saga
        assert (end.state, end.failure.reason if end.failure else "") == (SagaState.COMPENSATED, "ABORTED")
        assert stage.participants.sides(S) == ["a/action#1", "a/compensation#1"]
        assert await abort(stage)


@pytest.mark.parametrize("abort_first", [True, False])
async def test_v04_one_of_them_is_true(ledger_url: str, *, abort_first: bool) -> None:
    """S6, S10: accepted, and the pivot is never called; or refused, and the saga commits; and the same again when it is
    asked for again.
    """
    ledger = CountingLedger(dialect_of(ledger_url))
    called, answered = asyncio.Event(), asyncio.Event()

    async def answer(request: CallRequest) -> Answer:
        if (request.step, request.direction) == ("a", "ACTION"):
            called.set()
            await answered.wait()
        return await succeed(request)

    async with rig(ledger, answer=answer, heartbeat_interval_s=3) as stage:
        kept = await ledger.put_definition(stored(definition()))
        await stage.engine.start(StartRequest(saga_id=S, definition=kept, input=b""))
        await called.wait()
        with nothing_gets_through(ledger_url):
            plug = asyncio.create_task(ledger.heartbeat(SystemClock().now()))
            first = asyncio.create_task(abort(stage)) if abort_first else None
            await eventually(lambda: ledger.aborts == abort_first, what="the abort waits")
            answered.set()
            await eventually(lambda: ledger.decisions == 1, what="the decision waits")
            aborting = first or asyncio.create_task(abort(stage))
            await eventually(lambda: ledger.aborts == 1, what="the abort waits")
        await asyncio.gather(plug, return_exceptions=True)
        accepted = await aborting
        end = (await stage.end(S)).saga
        sides = stage.participants.sides(S)
        assert await abort(stage) is accepted
    if accepted:
        assert (end.state, end.failure.reason if end.failure else "") == (SagaState.COMPENSATED, "ABORTED")
        assert sides == ["a/action#1", "a/compensation#1"]
    else:
        assert (end.state, sides) == (SagaState.COMMITTED, ["a/action#1", "p/action#1"])
