"""The notifications service: writes to customers; a letter that is sent is a row in its table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import insert

from amends import current_step
from keyed.calls import Answer, KeyedCalls
from keyed.database import new_id
from shop.notifications.tables import message
from shop.notifications.v1.notifications_pb2 import SendRequest, SendResponse
from shop.notifications.v1.notifications_pb2_grpc import NotificationsServiceServicer

if TYPE_CHECKING:
    from collections.abc import Awaitable

    import grpc
    from sqlalchemy import Connection


class Notifications(NotificationsServiceServicer):
    """Answers the calls of `shop.notifications.v1.NotificationsService`."""

    def __init__(self, calls: KeyedCalls) -> None:
        self._calls = calls

    async def Send(
        self,
        request: SendRequest,
        context: grpc.aio.ServicerContext[SendRequest, Awaitable[SendResponse]],
    ) -> SendResponse:
        return await self._calls.once(request, _send, SendResponse, context)


def _send(connection: Connection, request: SendRequest) -> Answer[SendResponse]:
    message_id = new_id("letter")
    connection.execute(
        insert(message).values(
            message_id=message_id,
            email=request.email,
            template=request.template,
            order_id=request.order_id,
            saga_id=current_step().saga_id,
        )
    )
    return Answer(SendResponse(message_id=message_id))
