"""The payments service over real gRPC: honest refusals, compensations that may come for nothing, money taken once."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from shop.demo.books import read_calls
from shop.money.v1.money_pb2 import Money
from shop.payments.v1.payments_pb2 import AuthorizeRequest, CaptureRequest, FindAuthorizationRequest, VoidRequest
from shop.payments.v1.payments_pb2_grpc import PaymentsServiceStub
from tests.participants.serving import as_step, serving
from tests.participants.test_services import CALL_TIMEOUT_S, course, rows

AUTHORIZE = AuthorizeRequest(customer_id="ada", amount=Money(currency_code="EUR", minor_units=4_200))


async def test_a_declined_card_leaves_nothing(tmp_path: Path) -> None:
    """S4: a clear refusal is proof that nothing was done, and is not remembered under the key."""
    too_much = AuthorizeRequest(customer_id="ada", amount=Money(currency_code="EUR", minor_units=100_001))
    async with serving("payments", tmp_path) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await PaymentsServiceStub(channel).Authorize(
                too_much, metadata=as_step("authorize"), timeout=CALL_TIMEOUT_S
            )
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert rows(tmp_path, "payments", "SELECT 1 FROM authorization UNION ALL SELECT 1 FROM answered_call") == []
    assert course(read_calls(tmp_path, "payments")) == [("Authorize", "FAILED_PRECONDITION", False)]


async def test_compensations_of_nothing_succeed_and_change_nothing(tmp_path: Path) -> None:
    """S4: whether there was anything to undo is not the coordinator's to know."""
    async with serving("payments", tmp_path) as channel:
        unknown, nameless = VoidRequest(authorization_id="auth-of-nobody"), VoidRequest()
        payments = PaymentsServiceStub(channel)
        for saga_id, request in (("saga-1", unknown), ("saga-2", nameless)):
            metadata = as_step("authorize", saga_id=saga_id, direction="compensation")
            await payments.Void(request, metadata=metadata, timeout=CALL_TIMEOUT_S)
    assert [call.outcome for call in read_calls(tmp_path, "payments")] == ["OK", "OK"]


async def test_void_finds_its_work_by_the_actions_key(tmp_path: Path) -> None:
    """S4: an authorisation whose id never reached anybody can still be undone."""
    async with serving("payments", tmp_path) as channel:
        payments = PaymentsServiceStub(channel)
        await payments.Authorize(AUTHORIZE, metadata=as_step("authorize"), timeout=CALL_TIMEOUT_S)
        void = as_step("authorize", direction="compensation")
        await payments.Void(VoidRequest(), metadata=void, timeout=CALL_TIMEOUT_S)
    assert rows(tmp_path, "payments", "SELECT state FROM authorization") == [("voided",)]


async def test_the_lookup_tells_what_became_of_the_action(tmp_path: Path) -> None:
    """S4: NOT_FOUND before, the action's own response afterwards."""
    lookup = as_step("authorize", direction="lookup")
    async with serving("payments", tmp_path) as channel:
        payments = PaymentsServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as missing:
            await payments.FindAuthorization(FindAuthorizationRequest(), metadata=lookup, timeout=CALL_TIMEOUT_S)
        made = await payments.Authorize(AUTHORIZE, metadata=as_step("authorize"), timeout=CALL_TIMEOUT_S)
        found = await payments.FindAuthorization(FindAuthorizationRequest(), metadata=lookup, timeout=CALL_TIMEOUT_S)
    assert missing.value.code() is grpc.StatusCode.NOT_FOUND
    assert found == made
    assert [call.outcome for call in read_calls(tmp_path, "payments")] == ["NOT_FOUND", "OK", "OK"]


async def test_capture_takes_what_stands_and_nothing_else(tmp_path: Path) -> None:
    """S6: money that was taken is not given back by a void, and nothing is taken twice under a new key."""
    async with serving("payments", tmp_path) as channel:
        payments = PaymentsServiceStub(channel)
        made = await payments.Authorize(AUTHORIZE, metadata=as_step("authorize"), timeout=CALL_TIMEOUT_S)
        capture, void = CaptureRequest(authorization_id=made.authorization_id), VoidRequest()
        await payments.Capture(capture, metadata=as_step("capture"), timeout=CALL_TIMEOUT_S)
        with pytest.raises(grpc.aio.AioRpcError) as again:
            await payments.Capture(capture, metadata=as_step("capture_again"), timeout=CALL_TIMEOUT_S)
        with pytest.raises(grpc.aio.AioRpcError) as too_late:
            await payments.Void(void, metadata=as_step("authorize", direction="compensation"), timeout=CALL_TIMEOUT_S)
    assert {again.value.code(), too_late.value.code()} == {grpc.StatusCode.FAILED_PRECONDITION}
    assert rows(tmp_path, "payments", "SELECT state, count(*) FROM authorization JOIN charge") == [("captured", 1)]
