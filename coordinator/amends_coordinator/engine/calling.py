"""Turns the effect "call this step" into the request that a participant gets, with everything its metadata says."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from amends_coordinator.core.effects import DIRECTION_OF, Call
from amends_coordinator.core.saga import idempotency_key
from amends_coordinator.core.states import Direction
from amends_coordinator.ports.participants import CallRequest

if TYPE_CHECKING:
    from amends_coordinator.core.saga import Intent, Saga
    from amends_coordinator.definitions.compiled import CompiledDefinition


def call_request(saga: Saga, effect: Call, definition: CompiledDefinition) -> CallRequest:
    """The request of one attempt; its intent is durable already (S1)."""
    direction = DIRECTION_OF[type(effect)]
    step = saga.plan.by_name[effect.step]
    intent = _intent(saga, effect, direction)
    action = saga.intent(effect.step, Direction.ACTION) or intent
    about_action = direction is not Direction.ACTION
    return CallRequest(
        saga_id=saga.id,
        step=effect.step,
        direction=direction,
        kind=step.kind,
        method=intent.method,
        participant=step.participant,
        key=idempotency_key(saga.id, effect.step, direction),
        attempt=effect.attempt,
        request=intent.request,
        timeout_us=effect.deadline_time - intent.attempt_start_time,
        deadline_time=effect.deadline_time,
        step_time=action.created_time,
        action_key=idempotency_key(saga.id, effect.step, Direction.ACTION) if about_action else None,
        action_target="same" if direction is Direction.COMPENSATION else None,
        traceparent=saga.traceparent,
        tracestate=saga.tracestate,
        parses=partial(definition.parses, effect.step, direction),
    )


def _intent(saga: Saga, effect: Call, direction: Direction) -> Intent:
    intent = saga.intent(effect.step, direction)
    if intent is None:
        raise LookupError(f"saga {saga.id} calls {effect.step}/{direction}, which it never announced")
    return intent
