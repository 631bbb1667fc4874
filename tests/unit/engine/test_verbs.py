"""What people ask of a saga, at the engine: decided again when somebody was quicker, told once, never for ever."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from amends import Retry, Saga
from amends.options import Guarantee, OnUnknown
from amends_coordinator.core.answer import Answer
from amends_coordinator.core.ids import DeadLetterId, SagaId
from amends_coordinator.core.states import IntentState, Outcome, Resolution, SagaState
from amends_coordinator.core.verbs import Refusal, VerbRefusedError
from amends_coordinator.engine.verbs import DECISIONS_AT_MOST
from amends_coordinator.ledger.memory import MemoryLedger
from amends_coordinator.ports.driving import Person, SagaBusyError, StartRequest
from amends_coordinator.ports.ledger import StoredSaga, SupersededError
from scenario.v1.scenario_pb2 import FindResponse, ScenarioInput, ScenarioOutput
from tests.scenarios.sagas import Undo
from tests.scenarios.test_lookups import DoFindable, Find
from tests.unit.engine.rig import LOST, Rig, rig, stored
from tests.waiting import pause

if TYPE_CHECKING:
    from amends_coordinator.ports.ledger import Write
    from amends_coordinator.ports.participants import CallRequest
    from amends_coordinator.ports.repairs import AuditEntry

ADA = Person(actor="unauthenticated:test", claimed_actor="ada", reason="looked into their books")
SAGA = SagaId("s")
BOUND_S = 20.0


class ContestedLedger(MemoryLedger):
    """Somebody is quicker, as often as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.contests = 0
        self.asked = 0

    async def append_verb(self, write: Write, audit: AuditEntry) -> int:
        """See the port."""
        self.asked += 1
        if self.contests:
            self.contests -= 1
            current = await self.load(write.saga.id)
            assert current is not None
            raise SupersededError(current)
        return await super().append_verb(write, audit)


def doubtful() -> Saga[ScenarioInput, ScenarioOutput]:
    """One step under a barrier, which is parked when nobody knows whether it happened."""
    soon = Retry(
        initial_delay=timedelta(milliseconds=1),
        maximum_delay=timedelta(milliseconds=1),
        total_timeout=timedelta(milliseconds=1),
        maximum_refusal_count=1,
    )
    saga = Saga("doubtful", input=ScenarioInput, output=ScenarioOutput)
    step = saga.step(
        "a",
        DoFindable(name="a"),
        retry=soon,
        guarantee=Guarantee.BARRIER,
        participant="raw",
        on_unknown=OnUnknown.PARK,
    )
    step.compensated_by(Undo(name="a"), by_key=True)
    step.looked_up_by(Find(name="a"), retry=soon)
    saga.output(ScenarioOutput)(effect_id=step.response.effect_id)
    return saga


class Lookups:
    """A participant whose actions get lost; what its lookup says is up to the test."""

    def __init__(self) -> None:
        self.lookup = LOST

    async def answer(self, request: CallRequest) -> Answer:
        """Answer one call."""
        await asyncio.sleep(0)
        return self.lookup if request.method.endswith("Find") else LOST


FOUND = Answer(
    outcome=Outcome.SUCCEEDED, status_code="OK", response=FindResponse(effect_id="e", name="a").SerializeToString()
)


async def parked(stage: Rig) -> DeadLetterId:
    """Start the saga; its dead letter's id once it is parked."""
    kept = await stage.ledger.put_definition(stored(doubtful()))
    await stage.engine.start(StartRequest(saga_id=SAGA, definition=kept, input=b""))
    async with asyncio.timeout(BOUND_S):
        while not (found := await loaded(stage)).saga.attention_required:
            await pause()
    (letter,) = found.saga.dead_letters
    return letter.id


async def loaded(stage: Rig) -> StoredSaga:
    """The saga as the ledger has it."""
    found = await stage.ledger.load(SAGA)
    assert found is not None
    return found


async def test_a_verb_is_decided_again_when_somebody_was_quicker() -> None:
    """Rule 3: what a person decided is applied to the saga as it stands, or not at all."""
    ledger, participant = ContestedLedger(), Lookups()
    async with rig(ledger, answer=participant.answer) as stage:
        letter = await parked(stage)
        ledger.contests = 3
        await stage.engine.verbs.terminate(SAGA, ADA)
        assert ledger.asked == 4
        (entry,) = (await ledger.list_audit_entries(SAGA, limit=9, before=None)).entries
        assert (entry.verb, entry.claimed_actor, entry.reason) == ("TerminateSaga", "ada", ADA.reason)
        assert (await loaded(stage)).saga.dead_letters[0].id == letter


async def test_nobody_decides_for_ever() -> None:
    """L2: a saga that is written again and again is said to be busy; nothing was changed."""
    ledger, participant = ContestedLedger(), Lookups()
    async with rig(ledger, answer=participant.answer) as stage:
        letter = await parked(stage)
        ledger.contests = DECISIONS_AT_MOST
        with pytest.raises(SagaBusyError, match="try again"):
            await stage.engine.verbs.retry(letter, ADA, forced=False)
        assert (await ledger.list_audit_entries(SAGA, limit=9, before=None)).entries == ()


async def test_a_dead_letter_is_told_when_it_is_opened_and_not_when_it_is_closed() -> None:
    """A person is called once for each; that the participant's answer closed it is no call for help."""
    told: list[str] = []
    participant = Lookups()
    async with rig(MemoryLedger(), answer=participant.answer, plant=told.append) as stage:
        letter = await parked(stage)
        participant.lookup = FOUND
        with pytest.raises(VerbRefusedError) as caught:
            await stage.engine.verbs.resolve(letter, ADA, resolution=Resolution.DID_NOT_HAPPEN, response=None)
        assert caught.value.refusal is Refusal.ACTION_HAPPENED
        end = await stage.end("s")
        assert end.saga.state is SagaState.COMMITTED
        assert end.saga.intents[0].state is IntentState.SUCCEEDED
        assert told.count("dead_letter_opened") == 1


async def test_what_is_not_there() -> None:
    """No saga, no dead letter: nothing is written."""
    async with rig(MemoryLedger()) as stage:
        verbs = stage.engine.verbs
        assert await verbs.abort(SAGA, ADA) is None
        assert await verbs.run_now(SAGA, ADA) is None
        assert await verbs.terminate(SAGA, ADA) is None
        with pytest.raises(VerbRefusedError) as caught:
            await verbs.retry(DeadLetterId("s/a/action/1"), ADA, forced=False)
        assert caught.value.refusal is Refusal.LETTER_NOT_FOUND
