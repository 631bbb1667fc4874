"""The notifications service: writes to customers; a letter that is sent is a row in its table.

Its handler is a plain function, as teams have them whose code waits for its database: it runs in a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import insert

from amends import barrier, current_step
from hosting.database import new_id
from shop.notifications.tables import message
from shop.notifications.v1.notifications_pb2 import SendRequest, SendResponse
from shop.notifications.v1.notifications_pb2_grpc import NotificationsServiceServicer

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, sessionmaker


class Notifications(NotificationsServiceServicer):
    """Answers the calls of `shop.notifications.v1.NotificationsService`."""

    def __init__(self, sessions: sessionmaker[Session]) -> None:
        self._sessions = sessions

    # Any: the typed stubs that are generated here know asynchronous handlers only.
    def Send(self, request: SendRequest, context: Any) -> Any:
        with barrier.transaction(self._sessions) as session:
            message_id = new_id("letter")
            session.execute(
                insert(message).values(
                    message_id=message_id,
                    email=request.email,
                    template=request.template,
                    order_id=request.order_id,
                    saga_id=current_step().saga_id,
                )
            )
            return SendResponse(message_id=message_id)
