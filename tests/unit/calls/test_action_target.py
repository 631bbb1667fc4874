"""What a compensation is told about who has its action, over real gRPC."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
import pytest

from amends_coordinator.calls.unary import UnaryParticipants
from amends_coordinator.core.ids import IdempotencyKey, Instant, SagaId, StepName
from amends_coordinator.core.states import Direction, Outcome, StepKind
from amends_coordinator.ports.ledger import InstanceRow
from amends_coordinator.ports.participants import CallRequest
from amends_coordinator.system import SystemClock

LEASE_END = Instant(2**60)


@dataclass(frozen=True, slots=True)
class Directory:
    """Who serves what: names of participants by service, all at one address."""

    serving: dict[str, tuple[str, ...]]
    address: str

    def instances(self, *, service: str, participant: str) -> Sequence[InstanceRow]:
        """See the port."""
        return [
            InstanceRow(participant=name, instance_id="1", address=self.address, capacity=0, lease_end_time=LEASE_END)
            for name in self.serving.get(service, ())
            if participant in ("", name)
        ]


@asynccontextmanager
async def listening(heard: list[dict[str, str | bytes]]) -> AsyncGenerator[str]:
    """A server that takes every call, remembers its metadata and answers with an empty message; its address."""

    class Everything(grpc.GenericRpcHandler):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
            async def answer(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
                heard.append({key: value for key, value in context.invocation_metadata() or ()})  # noqa: C416 - `dict` would take it for a mapping
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


def compensation(*, of: str, by: str) -> CallRequest:
    """A compensation by one method of an action that another was called for."""
    now = SystemClock().now()
    return CallRequest(
        saga_id=SagaId("s"),
        step=StepName("pay"),
        direction=Direction.COMPENSATION,
        kind=StepKind.COMPENSATABLE,
        method=by,
        participant="",
        key=IdempotencyKey("s/pay/compensation"),
        attempt=1,
        request=b"",
        timeout_us=10_000_000,
        deadline_time=Instant(now + 10_000_000),
        step_time=now,
        action_key=IdempotencyKey("s/pay/action"),
        action_method=of,
        traceparent="",
        tracestate="",
        parses=_whatever,
    )


@pytest.mark.parametrize(
    ("of", "serving", "target"),
    [
        ("bank.Bank/Pay", {"bank.Desk": ("bank",)}, "other"),
        ("bank.Bank/Pay", {"bank.Desk": ("bank",), "bank.Bank": ("bank",)}, "same"),
        ("bank.Bank/Pay", {"bank.Desk": ("desk",), "bank.Bank": ("bank",)}, "other"),
        ("bank.Desk/Pay", {"bank.Desk": ("bank",)}, "same"),
    ],
    ids=["nobody knows", "one serves both", "another has it", "one service"],
)
async def test_a_compensation_is_told_whether_it_has_the_action(
    of: str, serving: dict[str, tuple[str, ...]], target: str
) -> None:
    """S4: "nothing to undo" is said only by the participant that would know the action; others are told that they
    don't.
    """
    heard: list[dict[str, str | bytes]] = []
    async with listening(heard) as address:
        participants = UnaryParticipants(
            directory=Directory(serving, address),
            clock=SystemClock(),
            ledger_name="test",
            payload_limit_bytes=1 << 20,
            connect_gate_s=10,
        )
        answer = await participants.call(compensation(of=of, by="bank.Desk/Refund"))
        await participants.close()
    assert answer.outcome is Outcome.SUCCEEDED
    assert [call["amends-action-target"] for call in heard] == [target]
