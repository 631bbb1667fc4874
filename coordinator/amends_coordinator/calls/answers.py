"""Turns what gRPC hands back into an `Answer`. Nothing that a participant sends can make it raise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # it ships no stubs

from amends_coordinator.core.answer import ABORT_TRAILER, SEALED_TRAILER, Answer, classify
from amends_coordinator.core.states import Outcome
from amends_coordinator.core.text import clean_text
from amends_coordinator.core.values import maker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import grpc.aio

_answer = maker(Answer)

STATUS_DETAILS = "grpc-status-details-bin"
ABORT_REASON_LIMIT_BYTES = 512
LONGEST_RETRY_DELAY_US = 3_600_000_000


def ok_answer(
    response: bytes | None,
    trailers: Iterable[tuple[str, str | bytes]],
    *,
    parses: Callable[[bytes], bool],
    limit_bytes: int,
) -> Answer:
    """The answer that status OK gives: success, if the bytes are a response and not too large. `response` is None where
    a broken server said OK and sent no whole message.
    """
    if response is None:
        return Answer(outcome=Outcome.UNKNOWN, status_code="OK", message="the status was OK, but no response came")
    if len(response) > limit_bytes:
        return Answer(
            outcome=Outcome.UNKNOWN,
            status_code="OK",
            message=f"the response has {len(response)} bytes, the limit is {limit_bytes}",
        )
    outcome = classify("OK", {}, parses=parses(response))
    if outcome is not Outcome.SUCCEEDED:
        return Answer(
            outcome=outcome, status_code="OK", message="the response's bytes don't parse as the method's response type"
        )
    abort_reason = _abort_reason(_by_key(trailers)) if trailers else None
    return _answer(outcome=outcome, status_code="OK", response=response, abort_reason=abort_reason)


def error_answer(error: grpc.aio.AioRpcError, *, sent: Iterable[tuple[str, str]] = ()) -> Answer:
    """The answer that any other status gives. `sent` are the headers that only this participant gets."""
    trailers = _by_key(error.trailing_metadata() or ())
    code = error.code().name
    reason, retry_delay_us = _details(trailers.get(STATUS_DETAILS))
    return Answer(
        outcome=classify(code, trailers, parses=False),
        status_code=code,
        message=clean_text(without_sent(error.details() or f"{code}, without a message", sent)),
        reason=without_sent(reason, sent),
        sealed=trailers.get(SEALED_TRAILER) == "1",
        retry_delay_us=retry_delay_us,
    )


def no_answer(timeout_s: float) -> Answer:
    """The answer where none came in time. gRPC's words for it, such as "Stream removed", name no cause."""
    return Answer(
        outcome=Outcome.UNKNOWN, status_code="DEADLINE_EXCEEDED", message=f"no answer within {timeout_s:.3g} s"
    )


def without_sent(text: str, sent: Iterable[tuple[str, str]]) -> str:
    """What a static participant says, without the token and the headers that it was sent: it may repeat them, and what
    it says is stored, logged and shown.
    """
    for _, value in sent:
        if len(value) > len("Bearer "):
            text = text.replace(value.removeprefix("Bearer "), "…")
    return text


def _by_key(trailers: Iterable[tuple[str, str | bytes]]) -> dict[str, str | bytes]:
    """Of repeated keys the last. (`dict` would take gRPC's metadata for a mapping, which it only resembles.)"""
    return {key: value for key, value in trailers}  # noqa: C416 - see above


def _abort_reason(trailers: Mapping[str, str | bytes]) -> str | None:
    raw = trailers.get(ABORT_TRAILER)
    if raw is None:
        return None
    data = raw if isinstance(raw, bytes) else raw.encode()
    return clean_text(data[:ABORT_REASON_LIMIT_BYTES].decode("utf-8", "replace"))


def _details(raw: str | bytes | None) -> tuple[str, int | None]:
    """The participant's own short reason and the delay it asks for, if it sent them."""
    reason, delay_us = "", None
    if not isinstance(raw, bytes):
        return reason, delay_us
    try:
        for detail in status_pb2.Status.FromString(raw).details:
            if detail.type_url.endswith("/google.rpc.ErrorInfo"):
                reason = clean_text(error_details_pb2.ErrorInfo.FromString(detail.value).reason)
            elif detail.type_url.endswith("/google.rpc.RetryInfo"):
                delay = error_details_pb2.RetryInfo.FromString(detail.value).retry_delay
                delay_us = min(max(0, delay.seconds * 1_000_000 + delay.nanos // 1_000), LONGEST_RETRY_DELAY_US)
    except DecodeError:
        return reason, delay_us
    return reason, delay_us
