"""Services with planted bugs, each a mistake that people make, and the worlds that have them.

Without a fault all of them do what they should: a test that only tries them finds nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sqlalchemy import insert, select, update

from amends import Rejected, barrier, current_step
from bank.service import Accounts
from bank.tables import RETURNED, account, debit
from bank.v1.bank_pb2 import ReturnDebitRequest, ReturnDebitResponse
from hosting.database import new_id
from shop.cards.client import CardClient
from shop.inventory.service import Inventory
from shop.inventory.tables import HELD, RELEASED, reservation, stock
from shop.inventory.v1.inventory_pb2 import ReleaseRequest, ReleaseResponse, ReserveRequest, ReserveResponse
from shop.payments.service import Payments
from shop.payments.v1.payments_pb2 import (
    AuthorizeRequest,
    AuthorizeResponse,
    CaptureRequest,
    CaptureResponse,
)
from tests.faults.bank_world import BankWorld
from tests.faults.shop_world import ShopWorld

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import TypeAlias, TypeVar

    import grpc
    from google.protobuf.message import Message
    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

    from hosting.database import Database
    from hosting.serving import Service

    Req = TypeVar("Req", bound=Message)
    Res = TypeVar("Res", bound=Message)
    Context: TypeAlias = grpc.aio.ServicerContext[Req, Awaitable[Res]]

LAPSE_S = 120.0


class WithoutBarrier(Inventory):
    """Reserves in a transaction of its own: every copy of the request reserves again."""

    async def Reserve(
        self, request: ReserveRequest, context: Context[ReserveRequest, ReserveResponse]
    ) -> ReserveResponse:
        async with self._sessions.begin() as session:
            await _take_from_shelf(session, request)
            return await _write_down(session, request)


class EffectBeforeGuard(Inventory):
    """Takes the pieces from the shelf, for good, before the barrier knows of it."""

    async def Reserve(
        self, request: ReserveRequest, context: Context[ReserveRequest, ReserveResponse]
    ) -> ReserveResponse:
        async with self._sessions.begin() as session:
            await _take_from_shelf(session, request)
        async with barrier.transaction(self._sessions) as guarded:
            return await _write_down(guarded, request)


class RemembersByHeart(Inventory):
    """Knows which keys it has answered, but only as long as its process lives."""

    def __init__(self, sessions: async_sessionmaker[AsyncSession]) -> None:
        super().__init__(sessions)
        self._answered: dict[str, ReserveResponse] = {}

    async def Reserve(
        self, request: ReserveRequest, context: Context[ReserveRequest, ReserveResponse]
    ) -> ReserveResponse:
        key = current_step().key
        if key not in self._answered:
            async with self._sessions.begin() as session:
                await _take_from_shelf(session, request)
                self._answered[key] = await _write_down(session, request)
        return self._answered[key]


class ForgetsWhatNeverCame(Inventory):
    """Undoes what is there, and leaves no mark where nothing is: what comes later stands."""

    async def Release(
        self, request: ReleaseRequest, context: Context[ReleaseRequest, ReleaseResponse]
    ) -> ReleaseResponse:
        held = reservation.c.reservation_id == request.reservation_id, reservation.c.state == HELD
        async with self._sessions.begin() as session:
            found = (await session.execute(select(reservation).where(*held))).one_or_none()
            if found is not None:
                await session.execute(update(reservation).where(*held).values(state=RELEASED))
                freed = update(stock).where(stock.c.sku == found.sku)
                await session.execute(freed.values(free_count=stock.c.free_count + found.quantity))
        return ReleaseResponse()


class RefundsEachTime(Accounts):
    """Gives the money back as often as it is asked to."""

    async def ReturnDebit(
        self, request: ReturnDebitRequest, context: Context[ReturnDebitRequest, ReturnDebitResponse]
    ) -> ReturnDebitResponse:
        made = debit.c.debit_id == request.debit_id
        async with self._sessions.begin() as session:
            found = (await session.execute(select(debit).where(made))).one_or_none()
            if found is not None:
                await session.execute(update(debit).where(made).values(state=RETURNED))
                refunded = update(account).where(account.c.account_id == found.account_id)
                await session.execute(refunded.values(minor_units=account.c.minor_units + found.minor_units))
        return ReturnDebitResponse()


class MayRefuseToCapture(Payments):
    """Behind the point of no return, and yet it says no once an authorisation has become too old."""

    authorized_at_s = 0.0

    async def Authorize(
        self, request: AuthorizeRequest, context: Context[AuthorizeRequest, AuthorizeResponse]
    ) -> AuthorizeResponse:
        self.authorized_at_s = asyncio.get_running_loop().time()
        return await super().Authorize(request, context)

    async def Capture(
        self, request: CaptureRequest, context: Context[CaptureRequest, CaptureResponse]
    ) -> CaptureResponse:
        if asyncio.get_running_loop().time() > self.authorized_at_s + LAPSE_S:
            raise Rejected("the authorisation has lapsed", reason="LAPSED")
        return await super().Capture(request, context)


class WithoutBarrierWorld(ShopWorld):
    """The shop with a reserve that has no barrier."""

    def servicer(self, name: str, service: Service, database: Database) -> object:
        """See `ShopWorld`."""
        planted = WithoutBarrier(database.sessions)
        return planted if name == "inventory" else super().servicer(name, service, database)


class RemembersByHeartWorld(ShopWorld):
    """The shop with a reserve that keeps its keys in memory."""

    def servicer(self, name: str, service: Service, database: Database) -> object:
        """See `ShopWorld`."""
        planted = RemembersByHeart(database.sessions)
        return planted if name == "inventory" else super().servicer(name, service, database)


class EffectBeforeGuardWorld(ShopWorld):
    """The shop with a reserve whose effect is committed before its guard row."""

    def servicer(self, name: str, service: Service, database: Database) -> object:
        """See `ShopWorld`."""
        planted = EffectBeforeGuard(database.sessions)
        return planted if name == "inventory" else super().servicer(name, service, database)


class ForgetsWhatNeverCameWorld(ShopWorld):
    """The shop with a release that ignores that there was nothing to release."""

    def servicer(self, name: str, service: Service, database: Database) -> object:
        """See `ShopWorld`."""
        planted = ForgetsWhatNeverCame(database.sessions)
        return planted if name == "inventory" else super().servicer(name, service, database)


class MayRefuseToCaptureWorld(ShopWorld):
    """The shop with a capture that can refuse."""

    def servicer(self, name: str, service: Service, database: Database) -> object:
        """See `ShopWorld`."""
        planted = MayRefuseToCapture(database.sessions, CardClient(self.cards))
        return planted if name == "payments" else super().servicer(name, service, database)


class RefundsEachTimeWorld(BankWorld):
    """Two banks whose refund isn't idempotent."""

    def servicer(self, database: Database) -> object:
        """See `BankWorld`."""
        return RefundsEachTime(database.sessions)


async def _take_from_shelf(session: AsyncSession, request: ReserveRequest) -> None:
    taken = update(stock).where(stock.c.sku == request.sku, stock.c.free_count >= request.quantity)
    done = await session.execute(taken.values(free_count=stock.c.free_count - request.quantity).returning(stock.c.sku))
    if done.one_or_none() is None:
        raise Rejected("not in stock", reason="OUT_OF_STOCK")


async def _write_down(session: AsyncSession, request: ReserveRequest) -> ReserveResponse:
    reservation_id = new_id("res")
    made = insert(reservation).values(reservation_id=reservation_id, sku=request.sku, quantity=request.quantity)
    await session.execute(made.values(state=HELD, saga_id=current_step().saga_id))
    return ReserveResponse(reservation_id=reservation_id)
