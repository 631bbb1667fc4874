"""Turns the effect "call this step" into the request that a participant gets, with everything its metadata says.

An attempt begins when its intent is durable, not when it was decided: what the ledger took is neither part of its
timeout nor charged to its budget.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from amends_coordinator.core.effects import DIRECTION_OF, Call, CallAction, CallCompensation, CallLookup
from amends_coordinator.core.guards import abort_applies
from amends_coordinator.core.ids import Instant
from amends_coordinator.core.saga import idempotency_key
from amends_coordinator.core.states import Direction
from amends_coordinator.core.tracing import attempt_traceparent
from amends_coordinator.ports.participants import CallRequest

if TYPE_CHECKING:
    from amends_coordinator.core.decision import Decision
    from amends_coordinator.core.ids import StepName
    from amends_coordinator.core.saga import Intent, Saga
    from amends_coordinator.definitions.compiled import CompiledDefinition


def call_request(
    saga: Saga, effect: Call, definition: CompiledDefinition, *, now: Instant, trace_ratio: float | None = None
) -> CallRequest:
    """The request of one attempt; its intent is durable already (S1). `trace_ratio`: as of `EngineSettings`."""
    step, direction = effect.step, DIRECTION_OF[type(effect)]
    intent = _intent(saga, step, direction)
    action, action_key, bound = intent, None, None
    if direction is not Direction.ACTION:
        action = saga.intent(step, Direction.ACTION) or intent
        action_key = idempotency_key(saga.id, step, Direction.ACTION)
    elif abort_applies(saga):
        # A letter to those whom a compensation concerns has none: it may be written long after the saga's timeout.
        bound = saga.deadline_time
    begin_time = intent.attempt_start_time
    return CallRequest(
        saga_id=saga.id,
        step=step,
        direction=direction,
        kind=saga.plan.by_name[step].kind,
        method=intent.method,
        participant=intent.participant,
        key=idempotency_key(saga.id, step, direction),
        attempt=effect.attempt,
        request=intent.request,
        timeout_us=effect.deadline_time - begin_time,
        deadline_time=_deadline(effect.deadline_time, now - begin_time, bound),
        step_time=action.created_time,
        action_key=action_key,
        action_participant=action.participant if direction is Direction.COMPENSATION else None,
        traceparent=saga.traceparent if trace_ratio is None else _traceparent(saga, effect, direction, trace_ratio),
        tracestate=saga.tracestate,
        parses=definition.parser(step, direction),
        saga_deadline_time=bound,
    )


def begun_later(decision: Decision, waited_us: int) -> Decision:
    """A decision that an outage of the ledger held up: the attempts that it announced begin only now."""
    announced = {intent.key for intent in decision.records.announced}
    intents = tuple(_later(i, waited_us) if i.key in announced else i for i in decision.saga.intents)
    effects = tuple(
        replace(effect, deadline_time=Instant(effect.deadline_time + waited_us))
        if isinstance(effect, CallAction | CallCompensation | CallLookup)
        else effect
        for effect in decision.effects
    )
    return replace(decision, saga=replace(decision.saga, intents=intents), effects=effects)


def _later(intent: Intent, waited_us: int) -> Intent:
    *before, last = intent.attempts
    return replace(intent, attempts=(*before, replace(last, start_time=Instant(last.start_time + waited_us))))


def _deadline(deadline: Instant, waited_us: int, bound: Instant | None) -> Instant:
    """What a slow ledger took is given back, or a short timeout would be over before anything was sent, again and
    again. The saga's own deadline does not move.
    """
    if waited_us > 0:  # else the clock was set back
        deadline = Instant(deadline + waited_us)
    return deadline if bound is None or deadline < bound else bound


def _traceparent(saga: Saga, effect: Call, direction: Direction, ratio: float) -> str:
    """What a participant's span hangs under: the attempt's span, which is emitted when the saga has ended."""
    return attempt_traceparent(saga, effect.step, direction, effect.attempt, ratio=ratio)


def _intent(saga: Saga, step: StepName, direction: Direction) -> Intent:
    intent = saga.intent(step, direction)
    if intent is None:
        raise LookupError(f"saga {saga.id} calls {step}/{direction}, which it never announced")
    return intent
