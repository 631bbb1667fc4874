"""The payments service: has the card provider set money aside, give it back or take it.

All that it does is done in another company's books, so each handler is an effect outside of its own database: the
barrier writes down that it begins, the provider is asked under the same key with every attempt, and what came of it is
written down with the response.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import grpc
from sqlalchemy import MetaData

from amends import Rejected, barrier, current_step
from hosting.serving import Service
from shop.cards.client import CardClient, CardRefusedError
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
    from collections.abc import Awaitable, Generator

    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

    from shop.cards.client import Wire

PAYMENTS = "payments"


class Payments(PaymentsServiceServicer):
    """Answers the calls of `shop.payments.v1.PaymentsService`."""

    def __init__(self, sessions: async_sessionmaker[AsyncSession], cards: CardClient) -> None:
        self._sessions, self._cards = sessions, cards

    async def Authorize(
        self,
        request: AuthorizeRequest,
        context: grpc.aio.ServicerContext[AuthorizeRequest, Awaitable[AuthorizeResponse]],
    ) -> AuthorizeResponse:
        async with barrier.effect(self._sessions) as effect:
            with _refusals():
                authorization_id = await self._cards.authorize(
                    key=effect.key_uuid,
                    customer_id=request.customer_id,
                    minor_units=request.amount.minor_units,
                    currency_code=request.amount.currency_code,
                    statement_text=request.statement_text,
                    reference=current_step().saga_id,
                )
            return AuthorizeResponse(authorization_id=authorization_id)

    async def Void(
        self,
        request: VoidRequest,
        context: grpc.aio.ServicerContext[VoidRequest, Awaitable[VoidResponse]],
    ) -> VoidResponse:
        async with barrier.effect(self._sessions) as effect:
            # The action's key finds what was begun as well as what is done, and keeps a late request from arriving.
            with _refusals():
                await self._cards.void(
                    key=effect.key_uuid,
                    authorization_id=request.authorization_id,
                    authorization_key=effect.action_key_uuid,
                    reference=current_step().saga_id,
                )
            return VoidResponse()

    async def Capture(
        self,
        request: CaptureRequest,
        context: grpc.aio.ServicerContext[CaptureRequest, Awaitable[CaptureResponse]],
    ) -> CaptureResponse:
        async with barrier.effect(self._sessions) as effect:
            with _refusals():
                charge_id = await self._cards.capture(
                    key=effect.key_uuid,
                    authorization_id=request.authorization_id,
                    reference=current_step().saga_id,
                )
            return CaptureResponse(charge_id=charge_id)

    async def FindAuthorization(
        self,
        request: FindAuthorizationRequest,
        context: grpc.aio.ServicerContext[FindAuthorizationRequest, Awaitable[AuthorizeResponse]],
    ) -> AuthorizeResponse:
        async with barrier.effect(self._sessions) as effect:
            authorization_id = await self._cards.find(effect.action_key_uuid)
            if authorization_id is None:
                raise Rejected("the card provider has no such authorisation yet", code=grpc.StatusCode.NOT_FOUND)
            return AuthorizeResponse(authorization_id=authorization_id)


def payments_at(cards: Wire) -> Service:
    """The service that has a provider do its work; it keeps nothing but the barrier's rows."""
    return Service(MetaData(), lambda database: Payments(database.sessions, CardClient(cards)))


@contextmanager
def _refusals() -> Generator[None]:
    """Tells a no of the provider as one of ours: it speaks of the key, so it is for good. All else proves nothing."""
    try:
        yield
    except CardRefusedError as no:
        raise Rejected(no.message, reason=no.code.upper(), sealed=True) from no
