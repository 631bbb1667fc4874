"""The accounts of one bank: takes money from them and puts money on them, each idempotency key once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
from sqlalchemy import insert, select, update

from amends import Rejected, barrier, current_step
from bank.tables import COMPLETE, ON_ITS_WAY, OPEN, RETURNED, account, credit, debit
from bank.v1.bank_pb2 import (
    CompleteDebitRequest,
    CompleteDebitResponse,
    CreditRequest,
    CreditResponse,
    DebitRequest,
    DebitResponse,
    FindCreditRequest,
    FindDebitRequest,
    Money,
    ReturnDebitRequest,
    ReturnDebitResponse,
)
from bank.v1.bank_pb2_grpc import AccountsServiceServicer
from hosting.database import new_id

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sqlalchemy import Row
    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker


class Accounts(AccountsServiceServicer):
    """Answers the calls of `bank.v1.AccountsService`."""

    def __init__(self, sessions: async_sessionmaker[AsyncSession]) -> None:
        self._sessions = sessions

    async def Debit(
        self, request: DebitRequest, context: grpc.aio.ServicerContext[DebitRequest, Awaitable[DebitResponse]]
    ) -> DebitResponse:
        async with barrier.transaction(self._sessions) as session:
            balance = await _balance(session, request.account_id, request.amount)
            if balance < request.amount.minor_units:
                raise Rejected(f"account {request.account_id!r} has less than that", reason="OVERDRAWN")
            await _add(session, request.account_id, -request.amount.minor_units)
            debit_id = new_id("debit")
            await session.execute(
                insert(debit).values(
                    debit_id=debit_id,
                    account_id=request.account_id,
                    minor_units=request.amount.minor_units,
                    state=ON_ITS_WAY,
                    saga_id=current_step().saga_id,
                )
            )
            return DebitResponse(debit_id=debit_id)

    async def ReturnDebit(
        self,
        request: ReturnDebitRequest,
        context: grpc.aio.ServicerContext[ReturnDebitRequest, Awaitable[ReturnDebitResponse]],
    ) -> ReturnDebitResponse:
        async with barrier.transaction(self._sessions) as session:
            # The barrier knows what the action answered, even where that answer reached nobody.
            made = current_step().action_response
            debit_id = made.debit_id if isinstance(made, DebitResponse) else request.debit_id
            found = await _found(session, debit_id)
            if found is not None and found.state == COMPLETE:
                raise Rejected(f"the money of {debit_id} has arrived: ask for it there", reason="ALREADY_COMPLETE")
            if found is not None and found.state == ON_ITS_WAY:
                await session.execute(update(debit).where(debit.c.debit_id == debit_id).values(state=RETURNED))
                await _add(session, found.account_id, found.minor_units)
            return ReturnDebitResponse()

    async def FindDebit(
        self, request: FindDebitRequest, context: grpc.aio.ServicerContext[FindDebitRequest, Awaitable[DebitResponse]]
    ) -> DebitResponse:
        return await barrier.lookup(self._sessions, DebitResponse)

    async def Credit(
        self, request: CreditRequest, context: grpc.aio.ServicerContext[CreditRequest, Awaitable[CreditResponse]]
    ) -> CreditResponse:
        async with barrier.transaction(self._sessions) as session:
            await _balance(session, request.account_id, request.amount)
            await _add(session, request.account_id, request.amount.minor_units)
            credit_id = new_id("credit")
            await session.execute(
                insert(credit).values(
                    credit_id=credit_id,
                    account_id=request.account_id,
                    minor_units=request.amount.minor_units,
                    saga_id=current_step().saga_id,
                )
            )
            return CreditResponse(credit_id=credit_id)

    async def FindCredit(
        self,
        request: FindCreditRequest,
        context: grpc.aio.ServicerContext[FindCreditRequest, Awaitable[CreditResponse]],
    ) -> CreditResponse:
        return await barrier.lookup(self._sessions, CreditResponse)

    async def CompleteDebit(
        self,
        request: CompleteDebitRequest,
        context: grpc.aio.ServicerContext[CompleteDebitRequest, Awaitable[CompleteDebitResponse]],
    ) -> CompleteDebitResponse:
        async with barrier.transaction(self._sessions) as session:
            found = await _found(session, request.debit_id)
            if found is None or found.state != ON_ITS_WAY:
                raise Rejected(f"no debit {request.debit_id!r} is on its way", reason="NOT_ON_ITS_WAY")
            await session.execute(update(debit).where(debit.c.debit_id == found.debit_id).values(state=COMPLETE))
            return CompleteDebitResponse()


async def _balance(session: AsyncSession, account_id: str, amount: Money) -> int:
    """What is on the account, which nobody else changes until this call has ended.

    Raises:
        Rejected: no account of this bank takes part in that.
    """
    if amount.minor_units < 1:
        raise Rejected(
            f"{amount.minor_units} is no money to move: ask for more than nothing",
            reason="NO_MONEY",
            code=grpc.StatusCode.INVALID_ARGUMENT,
        )
    asked = select(account).where(account.c.account_id == account_id).with_for_update()
    found = (await session.execute(asked)).one_or_none()
    if found is None:
        raise Rejected(f"this bank has no account {account_id!r}", reason="NO_ACCOUNT", code=grpc.StatusCode.NOT_FOUND)
    if found.state != OPEN:
        raise Rejected(f"account {account_id!r} is {found.state}", reason="ACCOUNT_NOT_OPEN")
    if found.currency_code != amount.currency_code:
        raise Rejected(
            f"account {account_id!r} is kept in {found.currency_code}, not {amount.currency_code!r}",
            reason="OTHER_CURRENCY",
        )
    balance: int = found.minor_units
    return balance


async def _found(session: AsyncSession, debit_id: str) -> Row[Any] | None:  # Any: its columns, whatever they are
    asked = select(debit).where(debit.c.debit_id == debit_id).with_for_update()
    return (await session.execute(asked)).one_or_none()


async def _add(session: AsyncSession, account_id: str, minor_units: int) -> None:
    await session.execute(
        update(account)
        .where(account.c.account_id == account_id)
        .values(minor_units=account.c.minor_units + minor_units)
    )
