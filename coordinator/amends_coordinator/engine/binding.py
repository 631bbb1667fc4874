"""Builds what a decision needs before it can be written: the requests of new intents, and the output of a commit.

A request is built once, before its intent is written, and those bytes are sent on every attempt. A request that can't
be
built is an event of its own (`BindingFailed`), decided at once and written together with the decision that wanted it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amends_coordinator.core.decide import decide
from amends_coordinator.core.events import BindingFailed, Event, Moment
from amends_coordinator.core.states import SagaState
from amends_coordinator.core.text import clean_text
from amends_coordinator.definitions.errors import BindingError
from amends_coordinator.engine.choosing import choose_participants

if TYPE_CHECKING:
    from amends_coordinator.core.decision import Decision
    from amends_coordinator.core.saga import Saga
    from amends_coordinator.definitions.compiled import CompiledDefinition
    from amends_coordinator.ports.directory import Directory


def decide_and_bind(
    saga: Saga, event: Event, definition: CompiledDefinition, directory: Directory, *, payload_limit_bytes: int
) -> Decision:
    """Decide an event, build every request and output that the decision needs, and choose who is called.

    Args:
        saga: the saga as it was made durable last.
        event: what happened.
        definition: the saga's own definition, compiled.
        directory: who serves what just now.
        payload_limit_bytes: a request larger than this counts as one that can't be built.
    """
    decision = decide(saga, event)
    if decision.records.announced:
        decision = _bind(decision, event.at, definition, payload_limit_bytes)
        choose_participants(decision, definition, directory)
    if decision.changed and decision.saga.state is SagaState.COMMITTED:
        decision.fill_output(definition.output(decision.saga))
    return decision


def _bind(decision: Decision, at: Moment, definition: CompiledDefinition, payload_limit_bytes: int) -> Decision:
    """Build the requests of what is announced for the first time; a repeated attempt sends the bytes of the first one.

    Where one can't be built, what follows from that may announce others: all are built anew then.
    """
    for intent in decision.records.announced:
        if intent.attempt > 1:
            continue
        try:
            request = definition.bind(decision.saga, intent.step, intent.direction)
            if len(request) > payload_limit_bytes:
                raise BindingError(f"it has {len(request)} bytes, the limit is {payload_limit_bytes}")
        except BindingError as error:
            beside = tuple(other.key for other in decision.records.announced if other is not intent)
            failed = BindingFailed(at, intent.step, intent.direction, clean_text(str(error)), beside)
            both = decision.followed_by(decide(decision.saga, failed))
            return _bind(both, at, definition, payload_limit_bytes)
        decision.fill_request(intent, request)
    return decision
