"""The payments service: sets money aside on cards, gives it back or takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import insert, select, update

from amends import Rejected, current_step
from hosting.database import new_id
from keyed.calls import Answer, KeyedCalls
from shop.payments.tables import AUTHORIZED, CAPTURED, VOIDED, authorization, charge
from shop.payments.v1.payments_pb2 import (
    AuthorizeRequest,
    AuthorizeResponse,
    CaptureRequest,
    CaptureResponse,
    FindAuthorizationRequest,
    VoidRequest,
    VoidResponse,
)
from shop.payments.v1.payments_pb2_grpc import PaymentsServiceServicer

if TYPE_CHECKING:
    from collections.abc import Awaitable

    import grpc
    from sqlalchemy import Connection

CARD_LIMIT_MINOR_UNITS = 100_000


class Payments(PaymentsServiceServicer):
    """Answers the calls of `shop.payments.v1.PaymentsService`."""

    def __init__(self, calls: KeyedCalls, *, card_limit_minor_units: int = CARD_LIMIT_MINOR_UNITS) -> None:
        self._calls, self._card_limit = calls, card_limit_minor_units

    async def Authorize(
        self,
        request: AuthorizeRequest,
        context: grpc.aio.ServicerContext[AuthorizeRequest, Awaitable[AuthorizeResponse]],
    ) -> AuthorizeResponse:
        return await self._calls.once(request, self._authorize, AuthorizeResponse, context)

    async def Void(
        self,
        request: VoidRequest,
        context: grpc.aio.ServicerContext[VoidRequest, Awaitable[VoidResponse]],
    ) -> VoidResponse:
        return await self._calls.once(request, _void, VoidResponse, context)

    async def Capture(
        self,
        request: CaptureRequest,
        context: grpc.aio.ServicerContext[CaptureRequest, Awaitable[CaptureResponse]],
    ) -> CaptureResponse:
        return await self._calls.once(request, _capture, CaptureResponse, context)

    async def FindAuthorization(
        self,
        request: FindAuthorizationRequest,
        context: grpc.aio.ServicerContext[FindAuthorizationRequest, Awaitable[AuthorizeResponse]],
    ) -> AuthorizeResponse:
        return await self._calls.look_up(request, _find)

    def _authorize(self, connection: Connection, request: AuthorizeRequest) -> Answer[AuthorizeResponse]:
        if request.amount.minor_units > self._card_limit:
            raise Rejected("card declined: the amount is over the card's limit", reason="CARD_DECLINED")
        authorization_id, step = new_id("auth"), current_step()
        connection.execute(
            insert(authorization).values(
                authorization_id=authorization_id,
                customer_id=request.customer_id,
                minor_units=request.amount.minor_units,
                currency_code=request.amount.currency_code,
                statement_text=request.statement_text,
                state=AUTHORIZED,
                saga_id=step.saga_id,
                action_key=step.key,
            )
        )
        return Answer(AuthorizeResponse(authorization_id=authorization_id))


def _void(connection: Connection, request: VoidRequest) -> Answer[VoidResponse]:
    made = authorization.c
    by_id = made.authorization_id == request.authorization_id
    which = by_id if request.authorization_id else made.action_key == current_step().action_key
    row = connection.execute(select(made.authorization_id, made.state).where(which)).one_or_none()
    if row is not None and row.state == CAPTURED:
        raise Rejected(f"the money of {row.authorization_id} was taken already: refund it", reason="ALREADY_CAPTURED")
    if row is None or row.state == VOIDED:
        return Answer(VoidResponse(), effect_made=False)
    connection.execute(update(authorization).where(made.authorization_id == row.authorization_id).values(state=VOIDED))
    return Answer(VoidResponse())


def _capture(connection: Connection, request: CaptureRequest) -> Answer[CaptureResponse]:
    made = authorization.c
    captured = connection.execute(
        update(authorization)
        .where(made.authorization_id == request.authorization_id, made.state == AUTHORIZED)
        .values(state=CAPTURED)
    )
    if captured.rowcount == 0:
        raise Rejected(f"no authorisation {request.authorization_id!r} stands", reason="NOT_AUTHORIZED")
    charge_id = new_id("charge")
    connection.execute(
        insert(charge).values(
            charge_id=charge_id, authorization_id=request.authorization_id, saga_id=current_step().saga_id
        )
    )
    return Answer(CaptureResponse(charge_id=charge_id))


def _find(connection: Connection) -> AuthorizeResponse | None:
    made = authorization.c
    found: str | None = connection.execute(
        select(made.authorization_id).where(made.action_key == current_step().action_key)
    ).scalar_one_or_none()
    return None if found is None else AuthorizeResponse(authorization_id=found)
