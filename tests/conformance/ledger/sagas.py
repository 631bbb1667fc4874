"""Sagas to store: small ones, and one that uses everything that a row can hold."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from amends_coordinator.core.definition import StoredDefinition
from amends_coordinator.core.ids import DeadLetterId, DefinitionVersion, Instant, NodeId, SagaId, StepName
from amends_coordinator.core.plan import CallPlan, Plan, RetryPlan, StepPlan
from amends_coordinator.core.saga import Attempt, DeadLetter, Failure, Intent, Saga
from amends_coordinator.core.states import (
    DeadLetterReason,
    Direction,
    IntentState,
    Outcome,
    Resolution,
    SagaState,
    StepKind,
)
from amends_coordinator.ports.ledger import NewSaga, StoredSaga, Write

START = Instant(1_796_000_000_000_001)
"""When the sagas of these tests begin."""

NODE = NodeId("node-1")

_RETRY = RetryPlan(initial_delay_us=1, maximum_delay_us=2, total_timeout_us=3, maximum_refusals=4)


def plan_of(definition: StoredDefinition) -> Plan:
    """What the adapters are opened with: three retriable steps, named by the definition."""
    calls = CallPlan(method="shop.v1.ShopService/Do", timeout_us=5, retry=_RETRY)
    names = (StepName("reserve"), StepName("authorize"), StepName("ship"))
    steps = tuple(StepPlan(name=name, kind=StepKind.RETRIABLE, after=(), action=calls) for name in names)
    return Plan(name=definition.name, version=definition.version, steps=steps, timeout_us=6)


DEFINITION = StoredDefinition(
    name="order", version=DefinitionVersion("0123456789abcdef"), content=b"\x0a\x05order", created_time=START
)


def after(microseconds: int) -> Instant:
    """An instant after `START`."""
    return Instant(START + microseconds)


def intent(step: str, *, time: Instant = START, node: NodeId = NODE) -> Intent:
    """An intent whose first attempt is on its way."""
    return Intent(
        step=StepName(step),
        direction=Direction.ACTION,
        method="shop.v1.ShopService/Do",
        attempt=1,
        attempts=(Attempt(number=1, node=node, start_time=time),),
        request=b"\x00request\xff",
        created_time=time,
        updated_time=time,
    )


def succeeded(pending: Intent, *, time: Instant) -> Intent:
    """The intent after its attempt succeeded."""
    ended = replace(pending.attempts[-1], end_time=time, status_code="OK", outcome=Outcome.SUCCEEDED)
    return replace(
        pending,
        state=IntentState.SUCCEEDED,
        attempts=(*pending.attempts[:-1], ended),
        response=b"\x00response",
        updated_time=time,
    )


def saga(saga_id: str, *, time: Instant = START, due_time: Instant | None = None) -> Saga:
    """A saga as its start decides it: the first step's intent announced, due in case of a crash."""
    return Saga(
        id=SagaId(saga_id),
        plan=plan_of(DEFINITION),
        input=b"\x00input",
        intents=(intent("reserve", time=time),),
        due_time=time if due_time is None else due_time,
        created_time=time,
        updated_time=time,
        progress_time=time,
        deadline_time=Instant(time + 3_600_000_000),
    )


def new(value: Saga, *, request: str = "request-1", owner: NodeId | None = NODE) -> NewSaga:
    """The start of a saga, by a request with its own token."""
    return NewSaga(saga=value, start_token=request, owner=owner, input_hash=b"\x01hash", input_hash_recipe="sha256-v1")


def advanced(value: Saga, step: str, *, time: Instant) -> Saga:
    """The saga after its last intent succeeded and the next one is announced."""
    done = succeeded(value.intents[-1], time=time)
    return replace(
        value, intents=(*value.intents[:-1], done, intent(step, time=time)), due_time=time, updated_time=time
    )


def write(value: Saga, seen_version: int) -> Write:
    """A decision that ends in this saga, listing its last two intents."""
    return Write(saga=value, seen_version=seen_version, intents=value.intents[-2:])


def full(saga_id: str) -> Saga:
    """A saga whose every field says something."""
    failure = Failure(
        step=StepName("ship"),
        reason="NO_CARRIER",
        status_code="FAILED_PRECONDITION",
        message="no «carrier»",
        time=after(5),
    )
    attempts = (
        Attempt(number=1, node=NODE, start_time=after(1), end_time=after(2), status_code="", outcome=Outcome.UNKNOWN),
        Attempt(number=2, node=NodeId('node "2"'), start_time=after(3)),
    )
    first = replace(
        intent("reserve"),
        participant="stock-2",
        state=IntentState.PARKED,
        attempt=2,
        attempts=attempts,
        attempts_left_out=MappingProxyType({"UNAVAILABLE": 7, "": 2}),
        next_attempt_time=after(9),
        unsettled=True,
        refusals=3,
        spent_us=2**40,
        unsent_us=2**41,
        response=b"",
        last_error="no answer\nat all",
        last_code="DEADLINE_EXCEEDED",
        key_forced=True,
        resolution=Resolution.UNDONE_BY_HAND,
        resolved_by="ada",
    )
    undo = replace(intent("reserve"), direction=Direction.COMPENSATION)
    letters = (
        _letter(saga_id, 1, StepName("reserve"), Direction.ACTION, after(7)),
        _letter(saga_id, 2, None, None, None),
    )
    return replace(
        saga(saga_id),
        state=SagaState.COMPENSATION_FAILED,
        output=b"\x00output",
        labels=MappingProxyType({"team": "shop", "ticket": "ä 1"}),
        failure=failure,
        point_of_no_return_passed=True,
        abort_requested=True,
        unproven=True,
        intents=(first, undo),
        dead_letters=letters,
        compensations_owed=2,
        due_time=None,
        ended_time=after(10),
        traceparent="00-0123-4567-01",
        tracestate="a=b",
    )


def _letter(
    saga_id: str, number: int, step: StepName | None, direction: Direction | None, closed_time: Instant | None
) -> DeadLetter:
    return DeadLetter(
        id=DeadLetterId(f"{saga_id}/{step}/{direction}/{number}"),
        step=step,
        direction=direction,
        reason=DeadLetterReason.OUTCOME_UNKNOWN if step else DeadLetterReason.TIMED_OUT,
        last_error="nobody knows",
        opened_time=after(6),
        closed_time=closed_time,
    )


def stored(value: Saga, version: int, owner: NodeId | None = NODE) -> StoredSaga:
    """What the ledger is expected to hold."""
    return StoredSaga(saga=value, version=version, owner=owner)
