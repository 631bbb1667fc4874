"""What a person who looks on is told: each transition once, why a saga waits, who comes and goes; never a payload."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from amends_coordinator.core.answer import Answer
from amends_coordinator.core.ids import Instant, NodeId, StepName
from amends_coordinator.core.saga import Attempt
from amends_coordinator.core.states import Direction, IntentState, Outcome, SagaState
from amends_coordinator.ports.ledger import InstanceRow
from amends_coordinator.telemetry import happenings as told
from amends_coordinator.telemetry.telling import TellingTelemetry
from tests.unit.grpc_api.samples import NOW, SERVICE, ManualClock, compiled_errand, failed_saga

if TYPE_CHECKING:
    from amends_coordinator.core.saga import Intent, Saga

SECRET = "4111-1111-1111-1111"
LEASE_US = 20_000
DO = StepName("do")


@dataclass
class Looking:
    """Somebody who looks on."""

    clock: ManualClock = field(default_factory=ManualClock)
    heard: list[told.Happening] = field(default_factory=list[told.Happening])
    unheard: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.telemetry = TellingTelemetry(self.tell, clock=self.clock)

    def tell(self, happening: told.Happening) -> None:
        """Remember it."""
        self.heard.append(happening)
        if isinstance(happening, told.ParticipantWent) and happening.unheard:
            self.unheard.set()

    def instance(self, name: str = "theatre", address: str = "127.0.0.1:1") -> InstanceRow:
        """An instance announced now."""
        lease_end = Instant(self.clock.now() + LEASE_US)
        return InstanceRow(participant=name, instance_id="i", address=address, capacity=0, lease_end_time=lease_end)


@pytest.fixture
def saga() -> Saga:
    """A saga whose payloads must not show."""
    stored = failed_saga(compiled_errand())
    secret = SECRET.encode()
    intents = tuple(replace(each, request=secret, response=secret) for each in stored.saga.intents)
    return replace(stored.saga, input=secret, output=secret, intents=intents, labels={"card": SECRET})


def attempt(number: int, outcome: Outcome | None, node: str = "n-1") -> Attempt:
    """One that took 7 ms; with no outcome it is on its way."""
    end = None if outcome is None else Instant(NOW + 7_000)
    return Attempt(number=number, node=NodeId(node), start_time=NOW, end_time=end, outcome=outcome)


def under_way(saga: Saga, *attempts: Attempt, again: Instant | None = None) -> Intent:
    """The saga's action after these attempts: called just now, or waiting for its next time."""
    return replace(
        saga.intents[0],
        state=IntentState.PENDING,
        attempt=len(attempts),
        attempts=attempts,
        next_attempt_time=again,
        last_code="INTERNAL",
        last_error="did it forget to return?",
    )


async def test_each_transition_is_told_once_and_without_payloads(saga: Saga) -> None:
    """A saga's beginning, its calls, its dead letter, its state; nothing that anybody sent."""
    looking = Looking()
    looking.telemetry.saga_started(saga)
    looking.telemetry.intent_moved(saga, under_way(saga, attempt(1, None)))
    for intent in saga.intents:
        looking.telemetry.intent_moved(saga, intent)
    looking.telemetry.dead_letter_opened(saga, saga.dead_letters[0])
    looking.telemetry.saga_moved(saga)
    looking.telemetry.saga_moved(replace(saga, state=SagaState.COMMITTED, failure=None))
    kinds = [type(happening) for happening in looking.heard]
    assert kinds == [
        told.SagaBegan,
        told.CallEnded,
        told.CallEnded,
        told.DeadLetterOpened,
        told.SagaMoved,
        told.SagaMoved,
    ]
    assert SECRET not in repr(looking.heard)


async def test_an_attempt_that_proves_nothing_is_told_at_once(saga: Saga) -> None:
    """Not after the budget is spent: the first attempt's end says what was said, and when it is repeated."""
    looking = Looking()
    again = Instant(NOW + 100_000)
    looking.telemetry.intent_moved(saga, under_way(saga, attempt(1, Outcome.UNKNOWN), again=again))
    (ended,) = looking.heard
    assert isinstance(ended, told.CallEnded)
    assert (ended.outcome, ended.again_in_us, ended.took_us) == (Outcome.UNKNOWN, 100_000, 7_000)
    assert (ended.status_code, ended.said) == ("INTERNAL", "did it forget to return?")


async def test_what_another_incarnation_called_is_called_again(saga: Saga) -> None:
    """After a crash the call goes on with its key, and that is told; a repetition by the same node is not."""
    looking = Looking()
    looking.telemetry.intent_moved(saga, under_way(saga, attempt(1, Outcome.UNKNOWN), attempt(2, None)))
    assert not looking.heard
    looking.telemetry.intent_moved(saga, under_way(saga, attempt(1, Outcome.UNKNOWN), attempt(2, None, "n-2")))
    assert [type(happening) for happening in looking.heard] == [told.CallRepeated]


async def test_why_a_saga_waits_is_told_once(saga: Saga) -> None:
    """However often it is tried; with what is served here when nobody serves this; and again after it was sent."""
    looking = Looking()
    looking.telemetry.participant_announced(looking.instance(), ["tickets.v1.TicketService"])
    for _ in range(3):
        looking.telemetry.call_not_sent(saga, DO, Direction.ACTION, Answer(outcome=Outcome.NOT_SENT, message="no"))
        unsent = under_way(saga, attempt(1, Outcome.NOT_SENT), again=Instant(NOW + 1))
        looking.telemetry.intent_moved(saga, unsent)
    _, waits = looking.heard
    assert isinstance(waits, told.CallWaits)
    assert waits.nobody_serves_it
    assert waits.serving == (("theatre", ("tickets.v1.TicketService",)),)
    looking.telemetry.participant_announced(looking.instance("steps"), [SERVICE])
    looking.telemetry.intent_moved(saga, saga.intents[0])
    looking.telemetry.call_not_sent(saga, DO, Direction.ACTION, Answer(outcome=Outcome.NOT_SENT, message="no"))
    again = looking.heard[-1]
    assert isinstance(again, told.CallWaits)
    assert (again.nobody_serves_it, again.serving) == (False, ())


async def test_who_comes_who_moves_and_who_leaves() -> None:
    """A renewal is no news; another address is."""
    looking = Looking()
    for address in ("127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:2"):
        looking.telemetry.participant_announced(looking.instance(address=address), ["a.B"])
    looking.telemetry.participant_left("theatre", "i")
    looking.telemetry.participant_left("theatre", "i")
    assert looking.heard == [
        told.ParticipantCame(participant="theatre", address="127.0.0.1:1", services=("a.B",)),
        told.ParticipantCame(participant="theatre", address="127.0.0.1:2", services=("a.B",)),
        told.ParticipantWent(participant="theatre", address="127.0.0.1:2", unheard=False),
    ]


async def test_who_dies_is_missed_when_its_lease_is_over() -> None:
    """A participant that was killed says nothing: its lease, once renewed, tells."""
    looking = Looking()
    looking.telemetry.participant_announced(looking.instance(), ["a.B"])
    looking.clock.advance(LEASE_US // 2)
    looking.telemetry.participant_announced(looking.instance(), ["a.B"])
    looking.clock.advance(LEASE_US)
    async with asyncio.timeout(5):
        await looking.unheard.wait()
    assert [type(happening) for happening in looking.heard] == [told.ParticipantCame, told.ParticipantWent]
