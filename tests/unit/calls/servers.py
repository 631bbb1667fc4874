"""A server that takes every call, and one attempt to make of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import grpc

from amends_coordinator.core.ids import IdempotencyKey, Instant, SagaId, StepName
from amends_coordinator.core.states import Direction, StepKind
from amends_coordinator.ports.participants import CallRequest
from amends_coordinator.system import SystemClock


@asynccontextmanager
async def listening(heard: list[dict[str, str | bytes]], *, repeats: str = "") -> AsyncGenerator[str]:
    """A server that takes every call, remembers its metadata and answers with an empty message, or with an error that
    repeats a header; its address.
    """

    class Everything(grpc.GenericRpcHandler):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
            async def answer(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
                heard.append({key: value for key, value in context.invocation_metadata() or ()})  # noqa: C416 - `dict` would take it for a mapping
                if repeats:
                    await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"not for {heard[-1][repeats]!r}")
                return b""

            return grpc.unary_unary_rpc_method_handler(answer)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Everything(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


def _whatever(_: bytes) -> bool:
    """Every response parses."""
    return True


def compensation(*, participant: str = "bank", action_participant: str = "bank") -> CallRequest:
    """A compensation by one participant of an action that another has."""
    now = SystemClock().now()
    return CallRequest(
        saga_id=SagaId("s"),
        step=StepName("pay"),
        direction=Direction.COMPENSATION,
        kind=StepKind.COMPENSATABLE,
        method="bank.Desk/Refund",
        participant=participant,
        key=IdempotencyKey("s/pay/compensation"),
        attempt=1,
        request=b"",
        timeout_us=10_000_000,
        deadline_time=Instant(now + 10_000_000),
        step_time=now,
        action_key=IdempotencyKey("s/pay/action"),
        action_participant=action_participant,
        traceparent="",
        tracestate="",
        parses=_whatever,
    )
