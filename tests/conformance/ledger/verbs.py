"""What the tests of people's writes share: audit entries, causes of aborts, sagas with open dead letters."""

from __future__ import annotations

from dataclasses import replace

from amends_coordinator.core.ids import DeadLetterId, Instant, SagaId, StepName
from amends_coordinator.core.saga import DeadLetter, Failure, Saga
from amends_coordinator.core.states import DeadLetterReason, Direction, IntentState
from amends_coordinator.ports.ledger import Ledger, Write
from amends_coordinator.ports.repairs import AuditEntry
from tests.conformance.ledger.sagas import after, new, saga


def entry(saga_id: str, number: int = 1, *, letter: str | None = None, time: Instant | None = None) -> AuditEntry:
    """What somebody did, as it is kept."""
    return AuditEntry(
        id=f"audit-{number}",
        saga_id=SagaId(saga_id),
        dead_letter_id=None if letter is None else DeadLetterId(letter),
        verb="RetryDeadLetter",
        actor="unauthenticated:ipv4:127.0.0.1:1",
        claimed_actor="ada",
        reason="payments is back",
        details='{"forced":true}',
        created_time=after(number) if time is None else time,
    )


def cause(message: str = "the customer left", *, time: Instant | None = None) -> Failure:
    """Why somebody asks for an abort."""
    return Failure(
        step=None, reason="ABORTED", status_code="", message=message, time=after(50) if time is None else time
    )


def letter(
    saga_id: str,
    number: int = 1,
    *,
    step: str = "reserve",
    reason: DeadLetterReason = DeadLetterReason.BUDGET_SPENT,
    time: Instant | None = None,
) -> DeadLetter:
    """An open dead letter of a step's action."""
    return DeadLetter(
        id=DeadLetterId(f"{saga_id}/{step}/action/{number}"),
        step=StepName(step),
        direction=Direction.ACTION,
        reason=reason,
        last_error="no answer",
        opened_time=after(number) if time is None else time,
    )


def parked(saga_id: str, *letters: DeadLetter, code: str = "UNAVAILABLE") -> Saga:
    """A saga whose step is parked, with these dead letters (one unless given)."""
    value = saga(saga_id)
    waiting = replace(value.intents[0], state=IntentState.PARKED, last_code=code, last_error="no answer")
    return replace(value, intents=(waiting,), dead_letters=letters or (letter(saga_id),), due_time=None)


async def put(ledger: Ledger, value: Saga) -> Saga:
    """Store a saga: its start, then one decision that makes it so. Its version is 2 afterwards."""
    await ledger.start(new(saga(value.id)))
    await ledger.append(write(value, 1))
    return value


def write(value: Saga, seen_version: int) -> Write:
    """A decision that lists everything."""
    return Write(saga=value, seen_version=seen_version, intents=value.intents, dead_letters=value.dead_letters)


def retried(value: Saga, *, time: Instant) -> Saga:
    """What a retry decides: the call waits for its time, which is now, and the dead letters are closed."""
    again = replace(value.intents[0], state=IntentState.PENDING, next_attempt_time=time, updated_time=time)
    closed = tuple(replace(each, closed_time=time) for each in value.dead_letters)
    return replace(value, intents=(again,), dead_letters=closed, due_time=time, updated_time=time)
