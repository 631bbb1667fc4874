"""How a refusal travels: its code, its text and its trailers, bounded so that they always arrive.

gRPC drops a call whose trailers are over 8 KiB and answers something else instead; a clear no would become an unknown
outcome. A text may be percent-encoded to three times its size and stands in the details once more, hence its limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import DecodeError, Message

# googleapis-common-protos ships stubs but no py.typed, so mypy does not read them.
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from amends.participant.context import cut_utf8
from amends.participant.refusals import Rejected, TryLater

if TYPE_CHECKING:
    from collections.abc import Iterable

TEXT_LIMIT_BYTES = 1024
REASON_LIMIT_BYTES = 256

EXECUTED_TRAILER = "amends-executed"
SEALED_TRAILER = "amends-sealed"
ABORT_TRAILER = "amends-abort-bin"
DETAILS_TRAILER = "grpc-status-details-bin"

Trailers = tuple[tuple[str, str | bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Everything that is sent when a call ends with another code than OK."""

    code: grpc.StatusCode
    text: str
    trailers: Trailers = ()


def rejected(refusal: Rejected, *, participant: str) -> Refusal:
    """A clear no, with the participant's reason as `ErrorInfo`."""
    text = _cut(refusal.message, TEXT_LIMIT_BYTES)
    info = error_details_pb2.ErrorInfo(domain=participant, reason=_cut(refusal.reason, REASON_LIMIT_BYTES))
    seal: Trailers = ((SEALED_TRAILER, "1"),) if refusal.sealed else ()
    return Refusal(code=refusal.code, text=text, trailers=(*seal, _details(refusal.code, text, info)))


def not_now(refusal: TryLater) -> Refusal:
    """Not begun, with proof of it, and when to try again as `RetryInfo`."""
    text = _cut(refusal.message, TEXT_LIMIT_BYTES)
    trailers: Trailers = ((EXECUTED_TRAILER, "no"),)
    if refusal.retry_after is not None:
        delay = duration_pb2.Duration()
        delay.FromTimedelta(max(refusal.retry_after, type(refusal.retry_after)()))
        info = error_details_pb2.RetryInfo(retry_delay=delay)
        trailers = (*trailers, _details(grpc.StatusCode.UNAVAILABLE, text, info))
    return Refusal(code=grpc.StatusCode.UNAVAILABLE, text=text, trailers=trailers)


def not_readable(problem: str) -> Refusal:
    """The call's metadata or request can't be understood, so its handler was not run: a fault of the wiring."""
    return Refusal(code=grpc.StatusCode.UNIMPLEMENTED, text=_cut(problem, TEXT_LIMIT_BYTES))


def key_in_use(problem: str) -> Refusal:
    """The handler was not run for this call, which proves nothing about the other one with its key."""
    return Refusal(code=grpc.StatusCode.ABORTED, text=_cut(problem, TEXT_LIMIT_BYTES))


def unknown_method(method: str, *, participant: str, known: Iterable[str]) -> Refusal:
    """The service is served here, but not this method of it: the caller's proto is another one."""
    names = ", ".join(path.rpartition("/")[2] for path in known)
    text = (
        f"participant {participant} has no {method}, only {names}: its generated code is older than the saga's, or the "
        "name is misspelt; generate it again and start the participant anew"
    )
    return Refusal(code=grpc.StatusCode.UNIMPLEMENTED, text=_cut(text, TEXT_LIMIT_BYTES))


def handler_raised(method: str, fault: BaseException) -> Refusal:
    """The handler ended in a way that proves nothing; what it said stays in the participant's log."""
    text = f"the handler of {method} raised {type(fault).__name__}; see the participant's log"
    return Refusal(code=grpc.StatusCode.UNKNOWN, text=text)


def surroundings_raised(method: str, fault: BaseException) -> Refusal:
    """The same of an interceptor, or of a stream."""
    text = f"a stream or an interceptor of {method} raised {type(fault).__name__}; see the participant's log"
    return Refusal(code=grpc.StatusCode.UNKNOWN, text=text)


def wrong_response(method: str, *, expected: str, got: object) -> Refusal:
    """The handler ran to its end and returned something else than its response: what it did stands."""
    what = f"returned {type(got).__name__} instead of {expected}"
    if got is None:
        what = f"returned None instead of {expected}: did it forget to return?"
    return Refusal(code=grpc.StatusCode.INTERNAL, text=f"the handler of {method} {what}")


def unsendable_response(method: str, fault: BaseException) -> Refusal:
    """The handler ran to its end, and its response can't be made bytes of: what it did stands."""
    text = f"the handler of {method} returned a response that can't be sent ({type(fault).__name__}); see its log"
    return Refusal(code=grpc.StatusCode.INTERNAL, text=text)


def error_reason(refusal: grpc.aio.AioRpcError) -> str:
    """The `ErrorInfo.reason` of an answer, "" if it has none or its details can't be read."""
    details = next((value for key, value in refusal.trailing_metadata() or () if key == DETAILS_TRAILER), None)
    if not isinstance(details, bytes):
        return ""
    try:
        packed = status_pb2.Status.FromString(details).details
        for detail in packed:
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info):
                return str(info.reason)
    except DecodeError:
        return ""
    return ""


def _details(code: grpc.StatusCode, text: str, detail: Message) -> tuple[str, bytes]:
    packed = any_pb2.Any()
    packed.Pack(detail)
    number: int = code.value[0]
    status = status_pb2.Status(code=number, message=text, details=[packed])
    return (DETAILS_TRAILER, bytes(status.SerializeToString()))


def _cut(text: str, limit_bytes: int) -> str:
    return cut_utf8(text, limit_bytes).decode("utf-8")
