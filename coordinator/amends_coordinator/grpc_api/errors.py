"""What a client is told when a request is refused: one table from domain errors to statuses, reasons and details."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import grpc
import structlog
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration

# googleapis-common-protos and grpcio-status ship no marker for mypy.
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # ships no types
from grpc_status import rpc_status  # type: ignore[import-untyped]  # ships no types

from amends.v1.error_reason_pb2 import ErrorReason
from amends_coordinator.core.verbs import Refusal, VerbRefusedError
from amends_coordinator.definitions.errors import Fault, InvalidDefinitionError, PayloadError
from amends_coordinator.engine.registry_errors import (
    DescriptorConflictError,
    NameTakenError,
    NotStaticError,
    UnknownParticipantError,
)
from amends_coordinator.grpc_api.validation import InvalidRequestError
from amends_coordinator.ports.describing import NotDescribedError
from amends_coordinator.ports.driving import SagaBusyError, StoppingError, TooManyWatchersError
from amends_coordinator.ports.ledger import (
    LedgerUnavailableError,
    NodeFencedError,
    UnreadableDefinitionError,
    UnreadableSagaError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from google.protobuf.message import Message

DOMAIN = "amends"
RETRY_DELAY_S = 1

# A status travels in headers, of which HTTP/2 peers take 8 KiB by default and drop more: the message, percent-encoded,
# and once more with the details in base 64.
MESSAGE_LIMIT_BYTES = 1_200
"""The message at most, percent-encoded."""

VIOLATIONS_LIMIT_BYTES = 3_400
"""What is said about fields at most, all together; how many more faults there are is said, too."""

PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
"""The characters that gRPC sends as they are."""

PATH_LIMIT = 200
DESCRIPTION_LIMIT = 400
"""The longest path and description of one fault, in characters."""

# structlog's loggers are proxies that it declares as Any itself.
_log: Any = structlog.get_logger("amends.api")


class ApiError(Exception):
    """Root of what the servicers themselves raise."""


class SagaNotFoundError(ApiError):
    """There is no saga with this id. Check it, and the coordinator's address."""

    def __init__(self, saga_id: str) -> None:
        super().__init__(f"there is no saga {saga_id} in this ledger; check the id and the coordinator's address")
        self.saga_id = saga_id


class DeadLetterNotFoundError(VerbRefusedError):
    """There is no dead letter with this id. List them."""

    def __init__(self, letter_id: str) -> None:
        super().__init__(
            Refusal.LETTER_NOT_FOUND, f"there is no dead letter {letter_id} in this ledger; list them to see their ids"
        )
        self.letter_id = letter_id


class DefinitionNotFoundError(ApiError):
    """There is no definition with this name and version. Register it first."""

    def __init__(self, name: str, version: str) -> None:
        self.resource = f"{name} {version}".rstrip()
        super().__init__(f"there is no saga definition {self.resource} in this ledger; register it first")


class SagaIdInUseError(ApiError):
    """The saga's id was used with another definition or input. Use a new one."""

    def __init__(self, saga_id: str, difference: str) -> None:
        super().__init__(f"saga {saga_id} exists with another {difference} and is unchanged; use a new id")
        self.saga_id = saga_id


class NotYetError(ApiError):
    """The method is part of the API, but this release doesn't carry it out yet."""

    def __init__(self, method: str) -> None:
        super().__init__(f"{method} is part of the API, but this release does not carry it out yet")


@dataclass(frozen=True, slots=True)
class Rule:
    """How one kind of error is told. `message` replaces the error's own text where that isn't meant for clients."""

    code: grpc.StatusCode
    reason: ErrorReason.ValueType
    details: Callable[[Any], Iterable[Message]] = lambda _: ()  # Any: each row of the table has its own type
    message: str = ""


def _bad_request(faults: Sequence[Fault]) -> list[Message]:
    """As many faults as there is room for, and how many more there are."""
    bad = error_details_pb2.BadRequest()
    for number, fault in enumerate(faults):
        path, description = _cut(fault.path, PATH_LIMIT), _cut(fault.description, DESCRIPTION_LIMIT)
        bad.field_violations.add(field=path, description=description)
        if bad.ByteSize() > VIOLATIONS_LIMIT_BYTES:
            bad.field_violations.pop()
            bad.field_violations.add(description=f"and {len(faults) - number} more faults; correct these first")
            break
    return [bad]


def _payload_fault(error: PayloadError) -> list[Message]:
    return _bad_request((Fault(error.path, str(error)),))


def _resource(kind: str, name: str, error: Exception) -> list[Message]:
    return [error_details_pb2.ResourceInfo(resource_type=kind, resource_name=name, description=str(error))]


def _contradictions(error: DescriptorConflictError) -> list[Message]:
    """As many contradictions as there is room for, and how many more there are."""
    failure = error_details_pb2.PreconditionFailure()
    kind, subject = "DESCRIPTOR_CONFLICT", "descriptors"
    for number, contradiction in enumerate(error.contradictions):
        failure.violations.add(type=kind, subject=subject, description=_cut(contradiction, DESCRIPTION_LIMIT))
        if failure.ByteSize() > VIOLATIONS_LIMIT_BYTES:
            failure.violations.pop()
            failure.violations.add(
                type=kind, subject=subject, description=f"and {len(error.contradictions) - number} more"
            )
            break
    return [failure]


def _refused_verb(error: VerbRefusedError) -> list[Message]:
    failure = error_details_pb2.PreconditionFailure()
    reason = ErrorReason.Name(REFUSALS[error.refusal].reason).removeprefix("ERROR_REASON_")
    failure.violations.add(type=reason, subject="saga", description=_cut(str(error), DESCRIPTION_LIMIT))
    return [failure]


def _response_required(error: VerbRefusedError) -> list[Message]:
    return _bad_request((Fault("response", str(error)),))


def _precondition(kind: str, error: Exception) -> list[Message]:
    failure = error_details_pb2.PreconditionFailure()
    failure.violations.add(type=kind, subject="participant", description=_cut(str(error), DESCRIPTION_LIMIT))
    return [failure]


def _retry(_: Exception) -> list[Message]:
    return [error_details_pb2.RetryInfo(retry_delay=Duration(seconds=RETRY_DELAY_S))]


def _too_many_watchers(error: TooManyWatchersError) -> list[Message]:
    quota = error_details_pb2.QuotaFailure()
    quota.violations.add(subject="WatchSaga", description=str(error))
    return [quota, *_retry(error)]


# grpcio-status is untyped, so what it gives has to be said here.
to_status = cast("Callable[[status_pb2.Status], grpc.Status]", rpc_status.to_status)  # pyright: ignore[reportUnknownMemberType] see above
_Code = grpc.StatusCode
_UNAVAILABLE = "the ledger can't be written or read just now and nothing was stored; try again"
_STOPPING = "this coordinator is stopping and takes no new work; try again"
_UNREADABLE = (
    "this release can't make sense of the saga's rows and leaves it alone; the log and its dead letter "
    "(amends deadletter list) say why: mend the rows with SQL, or run the release that wrote them, then retry the dead "
    "letter"
)
FAULT = Rule(
    _Code.INTERNAL,
    ErrorReason.ERROR_REASON_COORDINATOR_FAULT,
    message="the coordinator failed on this request and nothing was rolled back by it; its log has the details",
)

_OTHER_KIND = Rule(
    _Code.FAILED_PRECONDITION,
    ErrorReason.ERROR_REASON_PARTICIPANT_KIND,
    lambda error: _precondition("PARTICIPANT_KIND", error),
)

TABLE: Mapping[type[Exception], Rule] = {
    InvalidRequestError: Rule(
        _Code.INVALID_ARGUMENT, ErrorReason.ERROR_REASON_INVALID_REQUEST, lambda error: _bad_request(error.faults)
    ),
    InvalidDefinitionError: Rule(
        _Code.INVALID_ARGUMENT, ErrorReason.ERROR_REASON_INVALID_DEFINITION, lambda error: _bad_request(error.faults)
    ),
    PayloadError: Rule(_Code.INVALID_ARGUMENT, ErrorReason.ERROR_REASON_INVALID_PAYLOAD, _payload_fault),
    SagaNotFoundError: Rule(
        _Code.NOT_FOUND,
        ErrorReason.ERROR_REASON_SAGA_NOT_FOUND,
        lambda error: _resource("amends.v1.Saga", error.saga_id, error),
    ),
    DefinitionNotFoundError: Rule(
        _Code.NOT_FOUND,
        ErrorReason.ERROR_REASON_DEFINITION_NOT_FOUND,
        lambda error: _resource("amends.v1.SagaDefinition", error.resource, error),
    ),
    UnknownParticipantError: Rule(
        _Code.NOT_FOUND,
        ErrorReason.ERROR_REASON_PARTICIPANT_NOT_FOUND,
        lambda error: _resource("amends.v1.Participant", error.name, error),
    ),
    UnreadableDefinitionError: Rule(
        _Code.DATA_LOSS,
        ErrorReason.ERROR_REASON_DEFINITION_UNREADABLE,
        lambda error: _resource("amends.v1.SagaDefinition", error.resource, error),
    ),
    SagaIdInUseError: Rule(
        _Code.ALREADY_EXISTS,
        ErrorReason.ERROR_REASON_SAGA_ID_IN_USE,
        lambda error: _resource("amends.v1.Saga", error.saga_id, error),
    ),
    DescriptorConflictError: Rule(
        _Code.FAILED_PRECONDITION, ErrorReason.ERROR_REASON_DESCRIPTOR_CONFLICT, _contradictions
    ),
    NameTakenError: _OTHER_KIND,
    NotStaticError: _OTHER_KIND,
    NotDescribedError: Rule(
        _Code.FAILED_PRECONDITION,
        ErrorReason.ERROR_REASON_PARTICIPANT_NOT_DESCRIBED,
        lambda error: _precondition("PARTICIPANT_NOT_DESCRIBED", error),
    ),
    LedgerUnavailableError: Rule(_Code.UNAVAILABLE, ErrorReason.ERROR_REASON_LEDGER_UNAVAILABLE, _retry, _UNAVAILABLE),
    NodeFencedError: Rule(_Code.UNAVAILABLE, ErrorReason.ERROR_REASON_STOPPING, _retry, _STOPPING),
    SagaBusyError: Rule(_Code.ABORTED, ErrorReason.ERROR_REASON_SAGA_BUSY, _retry),
    TooManyWatchersError: Rule(
        _Code.RESOURCE_EXHAUSTED, ErrorReason.ERROR_REASON_TOO_MANY_WATCHERS, _too_many_watchers
    ),
    StoppingError: Rule(_Code.UNAVAILABLE, ErrorReason.ERROR_REASON_STOPPING, _retry, _STOPPING),
    UnreadableSagaError: Rule(_Code.DATA_LOSS, ErrorReason.ERROR_REASON_SAGA_UNREADABLE, message=_UNREADABLE),
    NotYetError: Rule(_Code.UNIMPLEMENTED, ErrorReason.ERROR_REASON_NOT_YET),
}
"""Every domain error that a request may end with. What isn't here is a fault of the coordinator."""

_CONTRADICTED = _Code.FAILED_PRECONDITION
REFUSALS: Mapping[Refusal, Rule] = {
    Refusal.LETTER_NOT_FOUND: Rule(
        _Code.NOT_FOUND,
        ErrorReason.ERROR_REASON_DEAD_LETTER_NOT_FOUND,
        lambda error: _resource("amends.v1.DeadLetter", getattr(error, "letter_id", ""), error),
    ),
    Refusal.LETTER_CLOSED: Rule(_CONTRADICTED, ErrorReason.ERROR_REASON_DEAD_LETTER_CLOSED, _refused_verb),
    Refusal.NOTHING_TO_REPEAT: Rule(_CONTRADICTED, ErrorReason.ERROR_REASON_NOTHING_TO_REPEAT, _refused_verb),
    Refusal.OUT_OF_ORDER: Rule(_CONTRADICTED, ErrorReason.ERROR_REASON_RETRY_OUT_OF_ORDER, _refused_verb),
    Refusal.KEY_EXPIRED: Rule(_CONTRADICTED, ErrorReason.ERROR_REASON_KEY_EXPIRED, _refused_verb),
    Refusal.RESOLUTION_REFUSED: Rule(_CONTRADICTED, ErrorReason.ERROR_REASON_RESOLUTION_REFUSED, _refused_verb),
    Refusal.RESPONSE_REQUIRED: Rule(
        _Code.INVALID_ARGUMENT, ErrorReason.ERROR_REASON_RESPONSE_REQUIRED, _response_required
    ),
    Refusal.PAST_POINT_OF_NO_RETURN: Rule(
        _CONTRADICTED, ErrorReason.ERROR_REASON_PAST_POINT_OF_NO_RETURN, _refused_verb
    ),
    Refusal.SAGA_ENDED: Rule(_CONTRADICTED, ErrorReason.ERROR_REASON_SAGA_NOT_RUNNING, _refused_verb),
    Refusal.ACTION_HAPPENED: Rule(_CONTRADICTED, ErrorReason.ERROR_REASON_ACTION_HAPPENED, _refused_verb),
}
"""Why a person's verb is refused, and how that is told."""

RULES = (*TABLE.values(), *REFUSALS.values(), FAULT)
"""Everything that a client can be told."""


def rule_of(error: Exception) -> Rule:
    """The row of the table for an error: that of its type, else of its nearest ancestor, else a coordinator's fault."""
    if isinstance(error, VerbRefusedError):
        return REFUSALS[error.refusal]
    return next((TABLE[kind] for kind in type(error).__mro__ if kind in TABLE), FAULT)


def reason_of(error: Exception) -> str:
    """The reason that a client is given, as its `ErrorInfo` has it."""
    return ErrorReason.Name(rule_of(error).reason).removeprefix("ERROR_REASON_")


def status_of(error: Exception) -> status_pb2.Status:
    """The status that a client gets, with its details."""
    rule = rule_of(error)
    details: list[Message] = [error_details_pb2.ErrorInfo(reason=reason_of(error), domain=DOMAIN), *rule.details(error)]
    message = rule.message or str(error)
    return status_pb2.Status(
        code=rule.code.value[0], message=_fitting(message), details=[_packed(detail) for detail in details]
    )


def status_told(error: Exception, *, method: str) -> status_pb2.Status:
    """The status that a client gets; an unexpected error is logged with its traceback, and the client hears only that.

    Args:
        error: what ended the request.
        method: "package.Service/Method", for the log.
    """
    if rule_of(error) is FAULT:
        _log.error("request failed", method=method, exc_info=error)
    return status_of(error)


def _packed(message: Message) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(message)
    return packed


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _fitting(message: str) -> str:
    """The message, cut so that it fits percent-encoded, as gRPC sends whatever isn't plain ASCII."""
    fitting = _cut(message, MESSAGE_LIMIT_BYTES)
    while len(quote(fitting, safe=PLAIN)) > MESSAGE_LIMIT_BYTES:
        fitting = _cut(fitting, len(fitting) * 3 // 4)
    return fitting
