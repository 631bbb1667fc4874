"""Turns the core's values and the ledger's rows into the API's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.timestamp_pb2 import Timestamp

from amends.v1 import registry_service_pb2, saga_definition_pb2, saga_pb2
from amends_coordinator.core.saga import idempotency_key
from amends_coordinator.core.states import DeadLetterReason, Direction, IntentState, Outcome, SagaState
from amends_coordinator.definitions.keys import key_uuid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amends_coordinator.core.definition import StoredDefinition
    from amends_coordinator.core.ids import Instant
    from amends_coordinator.core.saga import Attempt, DeadLetter, Failure, Intent
    from amends_coordinator.definitions.compiled import CompiledDefinition
    from amends_coordinator.engine.registry import Announced
    from amends_coordinator.ports.ledger import StoredSaga

TYPE_PREFIX = "type.googleapis.com/"
_MICROS = 1_000_000

SAGA_STATES: Mapping[SagaState, saga_pb2.Saga.State.ValueType] = {
    state: saga_pb2.Saga.State.Value(f"STATE_{state.value}") for state in SagaState
}
STATES_BY_NUMBER: Mapping[int, SagaState] = {number: state for state, number in SAGA_STATES.items()}
_INTENT_STATES: Mapping[IntentState, saga_pb2.Intent.State.ValueType] = {
    state: saga_pb2.Intent.State.Value(f"STATE_{state.value}") for state in IntentState
}
_DIRECTIONS: Mapping[Direction, saga_pb2.Direction.ValueType] = {
    direction: saga_pb2.Direction.Value(f"DIRECTION_{direction.value}") for direction in Direction
}
_OUTCOMES: Mapping[Outcome, saga_pb2.Outcome.ValueType] = {
    outcome: saga_pb2.Outcome.Value(f"OUTCOME_{outcome.value}") for outcome in Outcome
}
_REASONS: Mapping[DeadLetterReason, saga_pb2.DeadLetter.Reason.ValueType] = {
    reason: saga_pb2.DeadLetter.Reason.Value(f"REASON_{reason.value}") for reason in DeadLetterReason
}


def saga_summary(stored: StoredSaga, definition: CompiledDefinition) -> saga_pb2.Saga:
    """A saga without its ledger rows, as lists and starts answer it."""
    saga = stored.saga
    message = saga_pb2.Saga(
        saga_id=saga.id,
        definition_name=saga.plan.name,
        definition_version=saga.plan.version,
        state=SAGA_STATES[saga.state],
        input=_any(definition.input_type, saga.input),
        labels=saga.labels,
        failure=None if saga.failure is None else _failure(saga.failure),
        compensations_owed=saga.compensations_owed,
        attention_required=saga.attention_required,
        unproven=saga.unproven,
        point_of_no_return_passed=saga.point_of_no_return_passed,
        abort_requested=saga.abort_requested,
        due_time=None if saga.state.ended else _time(saga.due_time),
        node=stored.owner or "",
        create_time=_time(saga.created_time),
        update_time=_time(saga.updated_time),
        end_time=_time(saga.ended_time),
        deadline_time=_time(saga.deadline_time),
        traceparent=saga.traceparent,
    )
    if saga.output is not None and definition.output_type is not None:
        message.output.CopyFrom(_any(definition.output_type, saga.output))
    return message


def saga_with_rows(stored: StoredSaga, definition: CompiledDefinition, *, ledger_name: str) -> saga_pb2.Saga:
    """A saga with its intents and dead letters."""
    message = saga_with_dead_letters(stored, definition)
    for intent in stored.saga.intents:
        message.intents.append(_intent(stored, intent, definition, ledger_name))
    return message


def saga_with_dead_letters(stored: StoredSaga, definition: CompiledDefinition) -> saga_pb2.Saga:
    """A saga with its dead letters: all that one who waited for its end has to know."""
    message = saga_summary(stored, definition)
    for letter in stored.saga.dead_letters:
        message.dead_letters.append(_dead_letter(stored, letter))
    return message


def definition_message(stored: StoredDefinition) -> saga_definition_pb2.SagaDefinition:
    """A definition as stored, with what the ledger knows of it."""
    message = saga_definition_pb2.SagaDefinition.FromString(stored.content)
    message.name = stored.name
    message.version = stored.version
    message.create_time.CopyFrom(_stamp(stored.created_time))
    return message


def participant_message(announced: Announced) -> registry_service_pb2.Participant:
    """A participant with its living instances."""
    participant = announced.participant
    return registry_service_pb2.Participant(
        name=participant.name,
        services=participant.services,
        create_time=_time(participant.created_time),
        update_time=_time(participant.updated_time),
        instances=[
            registry_service_pb2.ParticipantInstance(
                instance_id=instance.instance_id,
                address=instance.address,
                capacity=instance.capacity,
                lease_end_time=_time(instance.lease_end_time),
            )
            for instance in announced.instances
        ],
    )


def _intent(stored: StoredSaga, intent: Intent, definition: CompiledDefinition, ledger_name: str) -> saga_pb2.Intent:
    key = idempotency_key(stored.saga.id, intent.step, intent.direction)
    message = saga_pb2.Intent(
        step=intent.step,
        direction=_DIRECTIONS[intent.direction],
        idempotency_key=key,
        idempotency_key_uuid=key_uuid(ledger_name, key),
        state=_INTENT_STATES[intent.state],
        method=intent.method,
        attempt_count=intent.attempt,
        attempts=[_attempt(attempt) for attempt in intent.attempts],
        attempts_left_out=intent.attempts_left_out,
        last_error=intent.last_error,
        next_attempt_time=_time(intent.next_attempt_time),
        create_time=_time(intent.created_time),
        update_time=_time(intent.updated_time),
    )
    if intent.attempt:  # without an attempt its request could not be built
        message.request.CopyFrom(_any(definition.request_type(intent.step, intent.direction), intent.request))
    if intent.response is not None:
        message.response.CopyFrom(_any(definition.response_type(intent.step, intent.direction), intent.response))
    return message


def _attempt(attempt: Attempt) -> saga_pb2.Attempt:
    return saga_pb2.Attempt(
        number=attempt.number,
        node=attempt.node,
        start_time=_time(attempt.start_time),
        end_time=_time(attempt.end_time),
        status_code=attempt.status_code,
        outcome=saga_pb2.OUTCOME_UNSPECIFIED if attempt.outcome is None else _OUTCOMES[attempt.outcome],
    )


def _dead_letter(stored: StoredSaga, letter: DeadLetter) -> saga_pb2.DeadLetter:
    return saga_pb2.DeadLetter(
        dead_letter_id=letter.id,
        saga_id=stored.saga.id,
        step=letter.step or "",
        direction=saga_pb2.DIRECTION_UNSPECIFIED if letter.direction is None else _DIRECTIONS[letter.direction],
        reason=_REASONS[letter.reason],
        last_error=letter.last_error,
        open_time=_time(letter.opened_time),
        close_time=_time(letter.closed_time),
    )


def _failure(failure: Failure) -> saga_pb2.Failure:
    return saga_pb2.Failure(
        step=failure.step or "",
        reason=failure.reason,
        status_code=failure.status_code,
        message=failure.message,
        failure_time=_time(failure.time),
    )


def _any(type_name: str, value: bytes) -> AnyMessage:
    return AnyMessage(type_url=f"{TYPE_PREFIX}{type_name}", value=value)


def _time(instant: Instant | None) -> Timestamp | None:
    return None if instant is None else _stamp(instant)


def _stamp(instant: Instant) -> Timestamp:
    seconds, micros = divmod(instant, _MICROS)
    return Timestamp(seconds=seconds, nanos=micros * 1_000)
