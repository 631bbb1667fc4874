"""Turns the core's values and the ledger's rows into the API's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from amends.v1 import operator_service_pb2, registry_service_pb2, saga_definition_pb2, saga_pb2
from amends_coordinator.core.saga import idempotency_key
from amends_coordinator.core.states import DeadLetterReason, Direction, IntentState, Outcome, Resolution, SagaState
from amends_coordinator.definitions.keys import key_uuid
from amends_coordinator.engine.connections import connection_message
from amends_coordinator.grpc_api.unreadable_payloads import show_as_bytes
from amends_coordinator.ports.ledger import UnreadableDefinitionError
from amends_coordinator.ports.repairs import FoundLetter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amends_coordinator.core.definition import StoredDefinition
    from amends_coordinator.core.ids import Instant, StepName
    from amends_coordinator.core.saga import Attempt, DeadLetter, Failure, Intent, Saga
    from amends_coordinator.definitions.compiled import CompiledDefinition
    from amends_coordinator.engine.announcements import Announced
    from amends_coordinator.ports.ledger import StoredSaga
    from amends_coordinator.ports.repairs import AuditEntry, LetterGroup, NodeRow

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
REASONS: Mapping[DeadLetterReason, saga_pb2.DeadLetter.Reason.ValueType] = {
    reason: saga_pb2.DeadLetter.Reason.Value(f"REASON_{reason.value}") for reason in DeadLetterReason
}
REASONS_BY_NUMBER: Mapping[int, DeadLetterReason] = {number: reason for reason, number in REASONS.items()}
_RESOLUTIONS: Mapping[Resolution, saga_pb2.Resolution.ValueType] = {
    resolution: saga_pb2.Resolution.Value(f"RESOLUTION_{resolution.value}") for resolution in Resolution
}
RESOLUTIONS_BY_NUMBER: Mapping[int, Resolution] = {number: found for found, number in _RESOLUTIONS.items()}


def saga_summary(
    stored: StoredSaga, definition: CompiledDefinition, *, steps_done: frozenset[StepName] | None = None
) -> saga_pb2.Saga:
    """A saga without its ledger rows, as lists and starts answer it. `steps_done`: where its intents aren't there."""
    message = saga_pb2.Saga()
    write_summary(message, stored, definition, steps_done=steps_done)
    return message


def write_summary(
    message: saga_pb2.Saga,
    stored: StoredSaga,
    definition: CompiledDefinition,
    *,
    steps_done: frozenset[StepName] | None = None,
) -> None:
    """Write a saga without its ledger rows into an empty message."""
    # Field by field into the one message that is sent: what is made first and copied in costs twice as much, and every
    # start is answered with this.
    saga, plan = stored.saga, stored.saga.plan
    message.saga_id = saga.id
    message.definition_name = plan.name
    message.definition_version = plan.version
    message.state = SAGA_STATES[saga.state]
    message.step_count = len(plan.steps)
    message.succeeded_step_count = _done_count(saga, steps_done)
    message.write_count = stored.version
    message.compensations_owed = saga.compensations_owed
    message.attention_required = saga.attention_required
    message.unproven = saga.unproven
    message.point_of_no_return_passed = saga.point_of_no_return_passed
    message.abort_requested = saga.abort_requested
    message.node = stored.owner or ""
    message.traceparent = saga.traceparent
    if stored.purged is None:
        _write_any(message.input, definition.input_type, saga.input)
    else:
        message.purged = True
    if saga.labels:
        message.labels.update(saga.labels)
    if saga.failure is not None:
        message.failure.CopyFrom(_failure(saga.failure))
    if saga.due_time is not None and saga.state is not SagaState.COMMITTED:
        _write_time(message.due_time, saga.due_time)
    _write_time(message.create_time, saga.created_time)
    _write_time(message.update_time, saga.updated_time)
    _write_time(message.progress_time, saga.progress_time)
    if saga.ended_time is not None:
        _write_time(message.end_time, saga.ended_time)
    _write_time(message.deadline_time, saga.deadline_time)
    if saga.output is not None and definition.output_type is not None:
        _write_any(message.output, definition.output_type, saga.output)


def _done_count(saga: Saga, steps_done: frozenset[StepName] | None) -> int:
    """How many of the definition's steps are done. A committed saga has done all (S3), whatever is left of its rows."""
    if saga.state is SagaState.COMMITTED:
        return len(saga.plan.steps)
    names = saga.steps_done if steps_done is None else steps_done
    return sum(step.name in names for step in saga.plan.steps) if names else 0


def saga_with_rows(stored: StoredSaga, definition: CompiledDefinition, *, ledger_name: str) -> saga_pb2.Saga:
    """A saga with its intents and dead letters."""
    message = saga_with_dead_letters(stored, definition)
    for intent in stored.saga.intents:
        message.intents.append(_intent(stored, intent, definition, ledger_name))
    return show_as_bytes(message, definition)


def saga_with_dead_letters(stored: StoredSaga, definition: CompiledDefinition) -> saga_pb2.Saga:
    """A saga with its dead letters: all that one who waited for its end has to know."""
    message = saga_pb2.Saga()
    write_with_dead_letters(message, stored, definition)
    return message


def write_with_dead_letters(message: saga_pb2.Saga, stored: StoredSaga, definition: CompiledDefinition) -> None:
    """Write a saga with its dead letters into an empty message."""
    write_summary(message, stored, definition)
    for letter in stored.saga.dead_letters:
        message.dead_letters.append(_dead_letter(stored, letter))


def definition_message(stored: StoredDefinition) -> saga_definition_pb2.SagaDefinition:
    """A definition as stored, with what the ledger knows of it.

    Raises:
        UnreadableDefinitionError: it is damaged.
    """
    try:
        message = saga_definition_pb2.SagaDefinition.FromString(stored.content)
    except DecodeError as error:
        raise UnreadableDefinitionError(stored.name, stored.version, str(error)) from error
    message.name = stored.name
    message.version = stored.version
    message.create_time.CopyFrom(_stamp(stored.created_time))
    return message


def participant_message(announced: Announced) -> registry_service_pb2.Participant:
    """A participant with its living instances, or its connection without the values of headers."""
    participant = announced.participant
    connection = None if announced.connection is None else connection_message(announced.connection)
    if connection is not None:
        for key in connection.headers:
            connection.headers[key] = ""
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
        connection=connection,
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
        resolution=saga_pb2.RESOLUTION_UNSPECIFIED if intent.resolution is None else _RESOLUTIONS[intent.resolution],
        resolved_by=intent.resolved_by,
        participant=intent.participant,
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
    saga = stored.saga
    intent = None
    if letter.step is not None and letter.direction is not None:
        intent = saga.intent(letter.step, letter.direction)
    return found_letter_message(
        FoundLetter(
            saga_id=saga.id,
            definition_name=saga.plan.name,
            letter=letter,
            method="" if intent is None else intent.method,
            last_code="" if intent is None else intent.last_code,
        )
    )


def found_letter_message(found: FoundLetter) -> saga_pb2.DeadLetter:
    """A dead letter with what an operator sorts by."""
    letter = found.letter
    return saga_pb2.DeadLetter(
        dead_letter_id=letter.id,
        saga_id=found.saga_id,
        step=letter.step or "",
        direction=saga_pb2.DIRECTION_UNSPECIFIED if letter.direction is None else _DIRECTIONS[letter.direction],
        reason=REASONS[letter.reason],
        last_error=letter.last_error,
        open_time=_time(letter.opened_time),
        close_time=_time(letter.closed_time),
        definition_name=found.definition_name,
        method=found.method,
        last_status_code=found.last_code,
    )


def letter_group_message(group: LetterGroup) -> operator_service_pb2.DeadLetterGroup:
    """How many dead letters are of one kind."""
    return operator_service_pb2.DeadLetterGroup(
        method=group.method,
        reason=REASONS[group.reason],
        last_status_code=group.last_code,
        dead_letter_count=group.count,
        oldest_open_time=_time(group.oldest_time),
    )


def audit_message(entry: AuditEntry) -> operator_service_pb2.AuditEntry:
    """What a person did."""
    return operator_service_pb2.AuditEntry(
        audit_entry_id=entry.id,
        saga_id=entry.saga_id,
        verb=entry.verb,
        actor=entry.actor,
        reason=entry.reason,
        create_time=_time(entry.created_time),
        dead_letter_id=entry.dead_letter_id or "",
        claimed_actor=entry.claimed_actor,
        details_json=entry.details,
    )


def node_message(row: NodeRow) -> operator_service_pb2.Node:
    """An incarnation of a coordinator process."""
    return operator_service_pb2.Node(
        node_id=row.node_id,
        start_time=_time(row.started_time),
        heartbeat_time=_time(row.heartbeat_time),
        fenced=row.fenced,
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


def _write_any(field: AnyMessage, type_name: str, value: bytes) -> None:
    field.type_url = f"{TYPE_PREFIX}{type_name}"
    field.value = value


def _time(instant: Instant | None) -> Timestamp | None:
    return None if instant is None else _stamp(instant)


def _stamp(instant: Instant) -> Timestamp:
    stamp = Timestamp()
    _write_time(stamp, instant)
    return stamp


def _write_time(field: Timestamp, instant: Instant) -> None:
    seconds, micros = divmod(instant, _MICROS)
    field.seconds = seconds
    field.nanos = micros * 1_000
