"""Sagas of other shapes over the shop's services: side by side, without a pivot, with a letter once rolled back."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from amends import Committed, Saga
from amends.testing import FaultMatrix
from shop.orders.v1.orders_pb2 import PlaceOrder
from shop.saga import CancelOrder, CreateOrder, Release, Reserve, Send
from tests.faults.shop_world import TEAPOT, ShopWorld

if TYPE_CHECKING:
    from amends.testing import End

gift = Saga("gift", input=PlaceOrder, timeout=timedelta(minutes=5))
wanted = gift.input

note = gift.step("note", CreateOrder(customer_id=wanted.customer_id, sku=wanted.sku, quantity=1), after=())
note.compensated_by(CancelOrder(order_id=note.response.order_id))

wrap = gift.step("wrap", Reserve(sku=wanted.sku, quantity=1), after=())
wrap.compensated_by(Release(reservation_id=wrap.response.reservation_id))

card = gift.step("card", Reserve(sku=wanted.sku, quantity=2), at_most_once=True)
card.compensated_by(Release(reservation_id=card.response.reservation_id))

gift.retriable("tell", Send(email=wanted.email, template="shipped", order_id=note.response.order_id))
gift.on_compensated("apologise", Send(email=wanted.email, template="sorry"))


class GiftWorld(ShopWorld):
    """The shop when somebody gives a present."""

    async def check(self, end: End) -> None:
        """All of it stands or nothing, no stock is gone, and whoever gets nothing is told so once."""
        books = self.books()
        standing = [row.thing for row in books.standing]
        kept = isinstance(end, Committed)
        assert standing.count("order") == (1 if kept else 0), f"{standing.count('order')} orders stand"
        assert standing.count("reservation") == (2 if kept else 0), (
            f"{standing.count('reservation')} reservations stand"
        )
        assert standing.count("letter") == 1, f"{standing.count('letter')} letters were sent"
        assert not any(books.stock_gaps.values()), f"pieces of stock are neither free nor held: {books.stock_gaps}"


GIFT = FaultMatrix(gift, input=TEAPOT, world=GiftWorld)
