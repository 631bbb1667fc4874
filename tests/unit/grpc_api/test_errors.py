"""What a client is told: every reason in the table, with the status and the detail that says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest

# googleapis-common-protos ships no marker for mypy.
from google.rpc import error_details_pb2  # type: ignore[import-untyped]  # ships no types

from amends.v1.error_reason_pb2 import ErrorReason
from amends_coordinator.core.verbs import Refusal, VerbRefusedError
from amends_coordinator.definitions.errors import DescriptorError, Fault, InvalidDefinitionError, PayloadError
from amends_coordinator.engine.registry_errors import DescriptorConflictError, UnknownParticipantError
from amends_coordinator.grpc_api.errors import (
    REFUSALS,
    RULES,
    DeadLetterNotFoundError,
    DefinitionNotFoundError,
    NotYetError,
    SagaIdInUseError,
    SagaNotFoundError,
    status_of,
)
from amends_coordinator.grpc_api.validation import InvalidRequestError
from amends_coordinator.ports.driving import SagaBusyError, StoppingError, TooManyWatchersError
from amends_coordinator.ports.ledger import (
    LedgerUnavailableError,
    NodeFencedError,
    UnknownPlanError,
    UnreadableDefinitionError,
    WriteRefusedError,
)

if TYPE_CHECKING:
    from google.protobuf.message import Message

FAULTS = (Fault("steps[1].action.method", "no such method"), Fault("name", "is required"))
CASES = [
    (InvalidRequestError(FAULTS), "INVALID_ARGUMENT", "INVALID_REQUEST", "BadRequest"),
    (InvalidDefinitionError(FAULTS), "INVALID_ARGUMENT", "INVALID_DEFINITION", "BadRequest"),
    (PayloadError("not that type"), "INVALID_ARGUMENT", "INVALID_PAYLOAD", "BadRequest"),
    (SagaNotFoundError("s-1"), "NOT_FOUND", "SAGA_NOT_FOUND", "ResourceInfo"),
    (DefinitionNotFoundError("order", ""), "NOT_FOUND", "DEFINITION_NOT_FOUND", "ResourceInfo"),
    (UnreadableDefinitionError("order", "", "why"), "DATA_LOSS", "DEFINITION_UNREADABLE", "ResourceInfo"),
    (UnknownParticipantError("payments"), "NOT_FOUND", "PARTICIPANT_NOT_FOUND", "ResourceInfo"),
    (SagaIdInUseError("s-1", "input"), "ALREADY_EXISTS", "SAGA_ID_IN_USE", "ResourceInfo"),
    (DescriptorConflictError(["a", "b"]), "FAILED_PRECONDITION", "DESCRIPTOR_CONFLICT", "PreconditionFailure"),
    (LedgerUnavailableError("disk secret"), "UNAVAILABLE", "LEDGER_UNAVAILABLE", "RetryInfo"),
    (NodeFencedError("fenced secret"), "UNAVAILABLE", "STOPPING", "RetryInfo"),
    (StoppingError("stopping"), "UNAVAILABLE", "STOPPING", "RetryInfo"),
    (UnknownPlanError("row secret"), "DATA_LOSS", "SAGA_UNREADABLE", ""),
    (SagaBusyError("busy"), "ABORTED", "SAGA_BUSY", "RetryInfo"),
    (DeadLetterNotFoundError("s-1/a/action/1"), "NOT_FOUND", "DEAD_LETTER_NOT_FOUND", "ResourceInfo"),
    *(
        (VerbRefusedError(refusal, "do this"), code, reason, detail)
        for refusal, code, reason, detail in [
            (Refusal.LETTER_NOT_FOUND, "NOT_FOUND", "DEAD_LETTER_NOT_FOUND", "ResourceInfo"),
            (Refusal.LETTER_CLOSED, "FAILED_PRECONDITION", "DEAD_LETTER_CLOSED", "PreconditionFailure"),
            (Refusal.NOTHING_TO_REPEAT, "FAILED_PRECONDITION", "NOTHING_TO_REPEAT", "PreconditionFailure"),
            (Refusal.OUT_OF_ORDER, "FAILED_PRECONDITION", "RETRY_OUT_OF_ORDER", "PreconditionFailure"),
            (Refusal.KEY_EXPIRED, "FAILED_PRECONDITION", "KEY_EXPIRED", "PreconditionFailure"),
            (Refusal.RESOLUTION_REFUSED, "FAILED_PRECONDITION", "RESOLUTION_REFUSED", "PreconditionFailure"),
            (Refusal.RESPONSE_REQUIRED, "INVALID_ARGUMENT", "RESPONSE_REQUIRED", "BadRequest"),
            (Refusal.PAST_POINT_OF_NO_RETURN, "FAILED_PRECONDITION", "PAST_POINT_OF_NO_RETURN", "PreconditionFailure"),
            (Refusal.SAGA_ENDED, "FAILED_PRECONDITION", "SAGA_NOT_RUNNING", "PreconditionFailure"),
            (Refusal.ACTION_HAPPENED, "FAILED_PRECONDITION", "ACTION_HAPPENED", "PreconditionFailure"),
        ]
    ),
    (NotYetError("a.B/C"), "UNIMPLEMENTED", "NOT_YET", ""),
    (ValueError("secret"), "INTERNAL", "COORDINATOR_FAULT", ""),
    (WriteRefusedError("secret"), "INTERNAL", "COORDINATOR_FAULT", ""),
    (DescriptorError("secret"), "INTERNAL", "COORDINATOR_FAULT", ""),
]


@pytest.mark.parametrize(("error", "code", "reason", "detail"), CASES, ids=lambda case: type(case).__name__)
def test_status_reason_and_detail(error: Exception, code: str, reason: str, detail: str) -> None:
    """Errors carry ErrorInfo and the standard detail that says what to do; no driver's or bug's text leaves (S11)."""
    status = status_of(error)
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (grpc.StatusCode[code].value[0], "amends", reason) == (status.code, info.domain, info.reason)
    kinds = [each.type_url.rpartition(".")[2] for each in status.details[1:]]
    assert kinds == ([detail] if detail else [])
    assert "secret" not in str(status)
    assert status.message


def test_every_reason_is_given() -> None:
    """No documented reason is left without an error that gives it."""
    given = {rule.reason for rule in RULES}
    assert given == set(ErrorReason.values()) - {ErrorReason.ERROR_REASON_UNSPECIFIED}


def test_every_refusal_is_told() -> None:
    """No verb is refused without a documented reason of its own."""
    assert set(REFUSALS) == set(Refusal)


def test_every_fault_has_its_path() -> None:
    """A malformed request or definition reports all its faults at once with their paths."""
    bad = error_details_pb2.BadRequest()
    assert status_of(InvalidDefinitionError(FAULTS)).details[1].Unpack(bad)
    assert [(each.field, each.description) for each in bad.field_violations] == [
        (fault.path, fault.description) for fault in FAULTS
    ]


def test_contradictions_and_delays_are_filled_in() -> None:
    """PreconditionFailure names each contradiction; RetryInfo has a delay above zero."""
    failure, retry = error_details_pb2.PreconditionFailure(), error_details_pb2.RetryInfo()
    _unpack(DescriptorConflictError(["a", "b"]), failure)
    _unpack(LedgerUnavailableError(""), retry)
    assert [each.description for each in failure.violations] == ["a", "b"]
    assert retry.retry_delay.seconds > 0


def test_a_quota_names_its_limit_and_when_to_come_back() -> None:
    """QuotaFailure says which limit is reached and which setting raises it, RetryInfo when to ask again."""
    quota, retry = error_details_pb2.QuotaFailure(), error_details_pb2.RetryInfo()
    status = status_of(TooManyWatchersError(7))
    assert status.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
    assert status.details[1].Unpack(quota)
    assert status.details[2].Unpack(retry)
    (violation,) = quota.violations
    assert violation.subject == "WatchSaga"
    assert "7 streams" in violation.description
    assert "AMENDS_MAX_WATCHERS" in violation.description
    assert retry.retry_delay.seconds > 0


def test_long_messages_are_cut() -> None:
    """A status travels in headers, which have a limit."""
    assert len(status_of(PayloadError("x" * 10_000)).message) <= 2_048


def _unpack(error: Exception, into: Message) -> None:
    assert status_of(error).details[1].Unpack(into)
