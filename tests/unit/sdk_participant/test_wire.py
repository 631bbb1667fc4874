"""How refusals travel: their codes, their details, and that they always fit."""

from __future__ import annotations

from datetime import timedelta

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped] # ships stubs but no py.typed
from hypothesis import given
from hypothesis import strategies as st

from amends.participant import REFUSAL_CODES, Rejected, TryLater, wire

# gRPC refuses to send more than 8 KiB of metadata; a handler's own trailers need some of it.
ROOM_BYTES = 6 * 1024


def _name(code: grpc.StatusCode) -> str:
    return code.name


REFUSING: list[grpc.StatusCode] = sorted(REFUSAL_CODES, key=_name)
PROVING_NOTHING: list[grpc.StatusCode] = sorted(set(grpc.StatusCode) - REFUSAL_CODES, key=_name)


def details(refusal: wire.Refusal) -> status_pb2.Status:
    """The status that stands in a refusal's trailers."""
    sent = dict(refusal.trailers)["grpc-status-details-bin"]
    assert isinstance(sent, bytes)
    return status_pb2.Status.FromString(sent)


@pytest.mark.parametrize("code", REFUSING, ids=_name)
def test_rejected_carries_code_and_reason(code: grpc.StatusCode) -> None:
    """S4: a clear no is sent with a code that only a participant can send, and says why."""
    sent = wire.rejected(Rejected("card declined", reason="CARD_DECLINED", code=code), participant="payments")
    status = details(sent)
    info = error_details_pb2.ErrorInfo()
    assert sent.code is code
    assert (status.code, status.message) == (code.value[0], "card declined")
    assert status.details[0].Unpack(info)
    assert (info.domain, info.reason) == ("payments", "CARD_DECLINED")


@pytest.mark.parametrize("code", PROVING_NOTHING, ids=_name)
def test_rejected_refuses_codes_that_prove_nothing(code: grpc.StatusCode) -> None:
    """S4: a code that gRPC makes itself can't be used as a no."""
    with pytest.raises(ValueError, match="no clear refusal") as caught:
        Rejected("no", code=code)
    assert "FAILED_PRECONDITION" in str(caught.value)


@pytest.mark.parametrize(
    ("retry_after", "sent_ms"), [(timedelta(milliseconds=1500), 1500), (timedelta(seconds=-3), 0), (timedelta(0), 0)]
)
def test_try_later_proves_that_nothing_began(retry_after: timedelta, sent_ms: int) -> None:
    """S4: "not now" says that the call did not begin, and when to come again; a time in the past is now."""
    sent = wire.not_now(TryLater("busy", retry_after))
    info = error_details_pb2.RetryInfo()
    assert sent.code is grpc.StatusCode.UNAVAILABLE
    assert dict(sent.trailers)["amends-executed"] == "no"
    assert details(sent).details[0].Unpack(info)
    assert info.retry_delay.ToMilliseconds() == sent_ms


def test_try_later_without_a_time_leaves_it_to_the_back_off() -> None:
    """S4: no RetryInfo is sent where the handler names no time."""
    assert wire.not_now(TryLater("busy")).trailers == (("amends-executed", "no"),)


@given(
    message=st.text(st.characters(codec=None)), reason=st.text(st.characters(codec=None)), times=st.integers(1, 5000)
)
def test_any_text_fits(message: str, reason: str, times: int) -> None:
    """L2: however long or odd its text, a refusal stays small enough to arrive, and a no stays a no."""
    sent = wire.rejected(Rejected(message * times, reason=reason * times), participant="payments")
    percent_encoded = 3 * len(sent.text.encode("utf-8"))
    trailers = sum(len(key) + len(value) * 4 // 3 + 4 for key, value in sent.trailers)
    assert percent_encoded + trailers < ROOM_BYTES


def test_a_refusal_made_of_something_else_than_a_text_is_still_one() -> None:
    """S4: whoever hands on an exception as it is has said no; what is no time span is told where it is written."""
    caught = ValueError("no such card")
    sent = wire.rejected(Rejected(caught), participant="payments")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # wrong on purpose
    assert (sent.code, sent.text) == (grpc.StatusCode.FAILED_PRECONDITION, "no such card")
    with pytest.raises(TypeError, match="retry_after=5 is no timedelta"):
        TryLater("busy", 5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # wrong on purpose
