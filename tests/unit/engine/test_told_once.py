"""Telemetry hears of everything that becomes durable exactly once, whoever wrote it and whoever went away meanwhile."""

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
    from amends_coordinator.ports.ledger import Write
    from amends_coordinator.ports.participants import CallRequest
    from amends_coordinator.ports.repairs import AuditEntry

ADA = Person(actor="unauthenticated:test", claimed_actor="ada", reason="a test")
SAGA = SagaId("s")


class Gated(MemoryLedger):
    """Writes a verb at once, and holds its answer back; before a driver's write it waits, too."""

    def __init__(self, *held: str) -> None:
        super().__init__()
        self.held = held
        self.reached, self.gate = asyncio.Event(), asyncio.Event()

    async def _hold(self, what: str) -> None:
        if what in self.held:
            self.reached.set()
            await self.gate.wait()

    async def append(self, write: Write) -> int:
        """See the port."""
        await self._hold("append")
        return await super().append(write)

    async def append_verb(self, write: Write, audit: AuditEntry) -> int:
        """See the port."""
        version = await super().append_verb(write, audit)
        await self._hold("append_verb")
        return version


async def never(request: CallRequest) -> Answer:
    """No answer, ever."""
    await asyncio.Event().wait()
    return await succeed(request)


async def test_a_saga_that_ends_in_the_decision_that_starts_it_is_told() -> None:
    """No request is small enough, so it has ended before there is a driver: it counts like any other."""
    async with rig(MemoryLedger(), payload_limit_bytes=0) as stage:
        await stage.start("s", "a")
        assert (await stage.end("s")).saga.state is SagaState.COMPENSATED
        assert stage.telemetry.started == ["s"]
        assert stage.telemetry.moved == [SagaState.COMPENSATED]


async def test_what_a_verb_did_is_not_told_again_by_the_driver_that_it_overtook() -> None:
    """A driver was about to write when somebody terminated its saga: what it finds then is no news."""
    ledger = Gated("append")
    async with rig(ledger) as stage:
        await stage.start("s", "a")
        await ledger.reached.wait()
        await stage.engine.verbs.terminate(SAGA, ADA)
        ledger.gate.set()
        ended = await stage.end("s")
        await stage.engine.stop(1.0)
        assert stage.telemetry.moved == [ended.saga.state]


async def test_what_a_client_asked_for_that_went_away_is_told() -> None:
    """A verb is written, and its client has gone meanwhile: it is counted all the same."""
    ledger = Gated("append_verb")
    async with rig(ledger, answer=never) as stage:
        await stage.start("s", "a")
        asking = asyncio.create_task(stage.engine.verbs.terminate(SAGA, ADA))
        await ledger.reached.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        ledger.gate.set()
        ended = await stage.end("s")
        assert stage.telemetry.moved == [ended.saga.state]
