"""Turns a failed call of the coordinator into one of our errors, with its reason and what to do now."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, cast

import grpc
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # it ships no stubs
from grpc_status import rpc_status  # type: ignore[import-untyped]  # the same

from amends import errors

if TYPE_CHECKING:
    from google.protobuf import any_pb2

DOMAIN = "amends"

# What to do is said here where the coordinator's own message doesn't.
_BY_REASON: dict[str, tuple[type[errors.CoordinatorError], str]] = {
    "INVALID_REQUEST": (errors.InvalidRequestError, "Correct the named fields."),
    "INVALID_PAYLOAD": (errors.InvalidRequestError, "Send a message of the type that the definition names."),
    "INVALID_DEFINITION": (errors.InvalidDefinitionError, "Correct the saga at the named paths and start it again."),
    "SAGA_NOT_FOUND": (errors.SagaNotFoundError, ""),
    "DEFINITION_NOT_FOUND": (
        errors.DefinitionNotFoundError,
        "",
    ),
    "SAGA_ID_IN_USE": (errors.SagaIdInUseError, ""),
    "PAST_POINT_OF_NO_RETURN": (errors.PastPointOfNoReturnError, ""),
    "LEDGER_UNAVAILABLE": (errors.CoordinatorUnavailableError, ""),
    "STOPPING": (errors.CoordinatorUnavailableError, ""),
    "TOO_MANY_WATCHERS": (
        errors.CoordinatorError,
        "Wait for ends with `SagaHandle.wait`, or watch fewer sagas at once.",
    ),
    "NOT_YET": (errors.NotYetError, "Use a release of the coordinator that carries it out."),
    "COORDINATOR_FAULT": (errors.CoordinatorError, ""),
}


@dataclass(slots=True)
class _Details:
    """What the standard details of a status say."""

    reason: str = ""
    fields: list[errors.FieldFault] = field(default_factory=list[errors.FieldFault])
    retry_delay: timedelta | None = None


def coordinator_error(failed: grpc.aio.AioRpcError, *, target: str, doing: str) -> errors.CoordinatorError:
    """The error for a call that failed.

    Arguments:
        failed: what gRPC raised.
        target: the coordinator's address, as the client was given it.
        doing: what the call was for, for example "starting saga 'order-1042'".
    """
    details = _read_details(failed)
    if not details.reason:
        return _without_reason(failed, target=target, doing=doing)
    kind, what_to_do = _BY_REASON.get(details.reason, (errors.CoordinatorError, ""))
    return kind(
        f"{doing}: {failed.details() or 'the coordinator gave no message'}",
        reason=details.reason,
        status_code=failed.code(),
        fields=details.fields,
        what_to_do=what_to_do,
        retry_delay=details.retry_delay,
    )


def _without_reason(failed: grpc.aio.AioRpcError, *, target: str, doing: str) -> errors.CoordinatorError:
    code, text = failed.code(), failed.details() or "no message"
    if code is grpc.StatusCode.UNAVAILABLE:
        return errors.CoordinatorUnavailableError(
            f"{doing}: no coordinator answers at {target}; start one with `amends dev` or check the address",
            reason="NO_COORDINATOR",
            status_code=code,
            what_to_do=f"gRPC says: {text}",
        )
    if code is grpc.StatusCode.CANCELLED:
        # It came from the other end: a client that cancels a call itself hears nothing of it any more.
        return errors.CoordinatorUnavailableError(
            f"{doing}: the coordinator at {target} stopped before it had answered",
            reason="NO_ANSWER",
            status_code=code,
            what_to_do="It may have done it all the same; doing it again is safe.",
        )
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return errors.CoordinatorUnavailableError(
            f"{doing}: the coordinator at {target} did not answer in time",
            reason="NO_ANSWER",
            status_code=code,
            what_to_do="It may have done it all the same; doing it again is safe.",
        )
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return errors.NotACoordinatorError(
            f"{doing}: what listens at {target} doesn't know this request ({text})",
            reason="NOT_A_COORDINATOR",
            status_code=code,
            what_to_do="Check that an amends coordinator of this release listens at that address.",
        )
    return errors.CoordinatorError(f"{doing}: {text}", reason="UNKNOWN", status_code=code)


def _read_details(failed: grpc.aio.AioRpcError) -> _Details:
    found = _Details()
    try:
        # Made for synchronous calls, but it reads what this exception has too; the one for aio wants the call itself.
        found_status = cast("object", rpc_status.from_call(failed))  # pyright: ignore[reportUnknownMemberType, reportArgumentType]
    except ValueError:
        # The details contradict the status: whoever sent this, it wasn't a coordinator of ours.
        return found
    status = cast("status_pb2.Status | None", found_status)
    for detail in status.details if status is not None else ():
        _read_detail(detail, found)
    return found


def _read_detail(detail: any_pb2.Any, found: _Details) -> None:
    info, bad, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    if detail.Unpack(info) and info.domain == DOMAIN:
        found.reason = info.reason
    elif detail.Unpack(bad):
        found.fields += [errors.FieldFault(fault.field, fault.description) for fault in bad.field_violations]
    elif detail.Unpack(retry):
        found.retry_delay = retry.retry_delay.ToTimedelta()
