"""What a client hears when a call is refused: the code, our reason, the details."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

# googleapis-common-protos and grpcio-status ship no marker for mypy.
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # ships no types

DETAILS_KEY = "grpc-status-details-bin"


@dataclass(frozen=True, slots=True)
class Refusal:
    """`paths` are BadRequest's, `resource` is ResourceInfo's name, `retry_s` RetryInfo's delay."""

    code: grpc.StatusCode
    reason: str
    message: str
    paths: tuple[str, ...] = ()
    resource: str = ""
    retry_s: int = 0


# Any: whatever the call would have answered.
async def refused(call: Awaitable[Any]) -> Refusal:
    """How a call is refused; fails if it is not."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return refusal_of(caught.value)


def refusal_of(error: grpc.aio.AioRpcError) -> Refusal:
    """What an error says in full."""
    raw = next((value for key, value in error.trailing_metadata() or () if key == DETAILS_KEY), None)
    assert isinstance(raw, bytes), f"{error.code()} without details: {error.details()}"
    status = status_pb2.Status.FromString(raw)
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    resource, retry = error_details_pb2.ResourceInfo(), error_details_pb2.RetryInfo()
    for detail in status.details:
        assert any(detail.Unpack(each) for each in (info, bad, resource, retry)) or detail.type_url
    assert info.domain == "amends"
    assert status.message == error.details()
    return Refusal(
        code=error.code(),
        reason=info.reason,
        message=status.message,
        paths=tuple(violation.field for violation in bad.field_violations),
        resource=resource.resource_name,
        retry_s=retry.retry_delay.seconds,
    )
