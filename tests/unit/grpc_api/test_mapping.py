"""The core's values as the API's messages: nothing lost, nothing invented."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.protobuf.wrappers_pb2 import BytesValue

from amends.v1 import saga_pb2
from amends_coordinator.core.ids import Instant
from amends_coordinator.core.states import DeadLetterReason, Direction, IntentState, Outcome, SagaState
from amends_coordinator.definitions.keys import key_uuid
from amends_coordinator.grpc_api.mapping import definition_message, saga_summary, saga_with_rows
from scenario.v1 import scenario_pb2
from tests.unit.grpc_api.samples import NOW, compiled_errand, errand, failed_saga, stored_errand


def test_saga_with_rows() -> None:
    """`GetSaga` is the inspection tool: states, payloads with their types, keys, attempts, dead letters."""
    definition = compiled_errand()
    message = saga_with_rows(failed_saga(definition), definition, ledger_name="staging")
    action, undo = message.intents
    sent, answered = scenario_pb2.DoRequest(), scenario_pb2.DoResponse()
    assert action.request.Unpack(sent)
    assert (sent.name, sent.amount) == ("a", 7)
    assert action.response.Unpack(answered)
    assert answered.effect_id == "e-1"
    assert action.participant == "steps"
    assert action.idempotency_key == "s-1/do/action"
    assert action.idempotency_key_uuid == key_uuid("staging", "s-1/do/action")
    assert action.attempts[0].outcome == saga_pb2.OUTCOME_SUCCEEDED
    assert undo.request.TypeName() == "scenario.v1.UndoRequest"
    assert not undo.HasField("response")
    assert undo.attempts[0].outcome == saga_pb2.OUTCOME_UNSPECIFIED
    assert not undo.attempts[0].HasField("end_time")
    assert dict(undo.attempts_left_out) == {"UNAVAILABLE": 5}
    assert message.dead_letters[0].reason == saga_pb2.DeadLetter.REASON_REFUSED
    assert message.attention_required
    assert message.failure.message == "sorry"
    assert message.node == "host-1"
    assert message.create_time.ToMicroseconds() == NOW
    assert not message.HasField("end_time")


def test_a_payload_that_does_not_parse_spoils_nothing_else() -> None:
    """L2: a damaged payload is shown as bytes of no type, all others as they are: grpcurl prints nothing at all of an
    answer in which one payload doesn't parse.
    """
    definition = compiled_errand()
    stored = failed_saga(definition)
    action, undo = stored.saga.intents
    damaged = replace(stored.saga, intents=(replace(action, request=b"\xff\xff"), undo))
    message = saga_with_rows(replace(stored, saga=damaged), definition, ledger_name="staging")
    raw = BytesValue()
    assert message.intents[0].request.Unpack(raw)
    assert raw.value == b"\xff\xff"
    assert message.intents[0].response.TypeName() == "scenario.v1.DoResponse"
    assert message.intents[1].request.TypeName() == "scenario.v1.UndoRequest"


def test_summary_leaves_the_rows_out() -> None:
    """Lists answer sagas without their ledger rows."""
    definition = compiled_errand()
    message = saga_summary(failed_saga(definition), definition)
    assert not message.intents
    assert not message.dead_letters
    assert message.input.TypeName() == "scenario.v1.DoRequest"


def test_output_and_end() -> None:
    """A committed saga has its output and its end, and is due no more."""
    definition = compiled_errand()
    stored = failed_saga(definition)
    ended = replace(stored.saga, state=SagaState.COMMITTED, output=b"", ended_time=NOW, due_time=Instant(1))
    message = saga_summary(replace(stored, saga=ended, owner=None), definition)
    assert message.output.TypeName() == "scenario.v1.FindResponse"
    assert message.end_time.ToMicroseconds() == NOW
    assert not message.HasField("due_time")
    assert message.node == ""


def test_a_request_that_could_not_be_built_is_left_out() -> None:
    """An intent without an attempt shows no empty request as if it had been sent."""
    definition = compiled_errand()
    stored = failed_saga(definition)
    parked = replace(stored.saga.intents[0], attempt=0, attempts=(), request=b"", response=None)
    saga = replace(stored.saga, intents=(parked,))
    message = saga_with_rows(replace(stored, saga=saga), definition, ledger_name="default")
    assert not message.intents[0].HasField("request")


def test_definition_has_its_version_and_time() -> None:
    """A definition comes back as resolved, with its files, its version and when it was registered first."""
    stored = stored_errand()
    message = definition_message(stored)
    assert (message.name, message.version) == ("errand", stored.version)
    assert message.create_time.ToMicroseconds() == NOW
    assert message.steps[0].compensation.method == "scenario.v1.StepService/Undo"
    assert {file.name for file in message.descriptors.file} <= {file.name for file in errand().descriptors.file}


@pytest.mark.parametrize(
    ("ours", "prefix", "theirs"),
    [
        (SagaState, "STATE_", saga_pb2.Saga.State.keys()),
        (IntentState, "STATE_", saga_pb2.Intent.State.keys()),
        (Direction, "DIRECTION_", saga_pb2.Direction.keys()),
        (Outcome, "OUTCOME_", saga_pb2.Outcome.keys()),
        (DeadLetterReason, "REASON_", saga_pb2.DeadLetter.Reason.keys()),
    ],
)
def test_every_value_has_its_twin(ours: type, prefix: str, theirs: list[str]) -> None:
    """Every state, outcome and reason of the core can be told."""
    assert {f"{prefix}{each.value}" for each in ours} <= set(theirs)  # type: ignore[attr-defined]  # an enum class
