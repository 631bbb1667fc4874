"""The accounts of one bank: takes money from them and puts money on them, each idempotency key once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
from sqlalchemy import insert, select, update

from amends import Rejected, current_step
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
from keyed.calls import Answer, KeyedCalls
from keyed.database import new_id

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sqlalchemy import Connection


class Accounts(AccountsServiceServicer):
    """Answers the calls of `bank.v1.AccountsService`."""

    def __init__(self, calls: KeyedCalls) -> None:
        self._calls = calls

    async def Debit(
        self, request: DebitRequest, context: grpc.aio.ServicerContext[DebitRequest, Awaitable[DebitResponse]]
    ) -> DebitResponse:
        return await self._calls.once(request, _debit, DebitResponse, context)

    async def ReturnDebit(
        self,
        request: ReturnDebitRequest,
        context: grpc.aio.ServicerContext[ReturnDebitRequest, Awaitable[ReturnDebitResponse]],
    ) -> ReturnDebitResponse:
        return await self._calls.once(request, _return_debit, ReturnDebitResponse, context)

    async def FindDebit(
        self, request: FindDebitRequest, context: grpc.aio.ServicerContext[FindDebitRequest, Awaitable[DebitResponse]]
    ) -> DebitResponse:
        return await self._calls.look_up(request, _find_debit)

    async def Credit(
        self, request: CreditRequest, context: grpc.aio.ServicerContext[CreditRequest, Awaitable[CreditResponse]]
    ) -> CreditResponse:
        return await self._calls.once(request, _credit, CreditResponse, context)

    async def FindCredit(
        self,
        request: FindCreditRequest,
        context: grpc.aio.ServicerContext[FindCreditRequest, Awaitable[CreditResponse]],
    ) -> CreditResponse:
        return await self._calls.look_up(request, _find_credit)

    async def CompleteDebit(
        self,
        request: CompleteDebitRequest,
        context: grpc.aio.ServicerContext[CompleteDebitRequest, Awaitable[CompleteDebitResponse]],
    ) -> CompleteDebitResponse:
        return await self._calls.once(request, _complete_debit, CompleteDebitResponse, context)


def _debit(connection: Connection, request: DebitRequest) -> Answer[DebitResponse]:
    key = _scoped(current_step().key)
    if connection.execute(select(debit.c.debit_id).where(debit.c.action_key == key)).one_or_none() is not None:
        raise Rejected("this debit was returned before it came", reason="RETURNED_BEFORE")
    _check_open(connection, request.account_id, request.amount)
    taken = connection.execute(
        update(account)
        .where(account.c.account_id == request.account_id, account.c.minor_units >= request.amount.minor_units)
        .values(minor_units=account.c.minor_units - request.amount.minor_units)
    )
    if taken.rowcount == 0:
        raise Rejected(f"account {request.account_id!r} has less than that", reason="OVERDRAWN")
    debit_id = new_id("debit")
    _write_debit(connection, debit_id, request.account_id, request.amount.minor_units, ON_ITS_WAY, key)
    return Answer(DebitResponse(debit_id=debit_id))


def _return_debit(connection: Connection, request: ReturnDebitRequest) -> Answer[ReturnDebitResponse]:
    made, action_key = debit.c, _scoped(current_step().action_key)
    which = made.debit_id == request.debit_id if request.debit_id else made.action_key == action_key
    row = connection.execute(
        select(made.debit_id, made.account_id, made.minor_units, made.state).where(which)
    ).one_or_none()
    if row is None:
        # Its request may still be on its way: what this leaves behind refuses it.
        _write_debit(connection, new_id("debit"), None, 0, RETURNED, action_key)
        return Answer(ReturnDebitResponse(), effect_made=False)
    if row.state == COMPLETE:
        raise Rejected(f"the money of {row.debit_id} has arrived: ask for it there", reason="ALREADY_COMPLETE")
    if row.state == RETURNED:
        return Answer(ReturnDebitResponse(), effect_made=False)
    connection.execute(update(debit).where(made.debit_id == row.debit_id).values(state=RETURNED))
    _add(connection, row.account_id, row.minor_units)
    return Answer(ReturnDebitResponse())


def _credit(connection: Connection, request: CreditRequest) -> Answer[CreditResponse]:
    _check_open(connection, request.account_id, request.amount)
    _add(connection, request.account_id, request.amount.minor_units)
    credit_id, step = new_id("credit"), current_step()
    connection.execute(
        insert(credit).values(
            credit_id=credit_id,
            account_id=request.account_id,
            minor_units=request.amount.minor_units,
            saga_id=step.saga_id,
            action_key=_scoped(step.key),
        )
    )
    return Answer(CreditResponse(credit_id=credit_id))


def _complete_debit(connection: Connection, request: CompleteDebitRequest) -> Answer[CompleteDebitResponse]:
    completed = connection.execute(
        update(debit).where(debit.c.debit_id == request.debit_id, debit.c.state == ON_ITS_WAY).values(state=COMPLETE)
    )
    if completed.rowcount == 0:
        raise Rejected(f"no debit {request.debit_id!r} is on its way", reason="NOT_ON_ITS_WAY")
    return Answer(CompleteDebitResponse())


def _find_debit(connection: Connection) -> DebitResponse | None:
    made = debit.c
    found: str | None = connection.execute(
        select(made.debit_id).where(made.action_key == _scoped(current_step().action_key), made.account_id.is_not(None))
    ).scalar_one_or_none()
    return None if found is None else DebitResponse(debit_id=found)


def _find_credit(connection: Connection) -> CreditResponse | None:
    found: str | None = connection.execute(
        select(credit.c.credit_id).where(credit.c.action_key == _scoped(current_step().action_key))
    ).scalar_one_or_none()
    return None if found is None else CreditResponse(credit_id=found)


def _scoped(key: str | None) -> str:
    """A key as it is kept: two ledgers may have a saga of the same id."""
    return f"{current_step().ledger}:{key}"


def _check_open(connection: Connection, account_id: str, amount: Money) -> None:
    """Refuses what no account of this bank can take part in."""
    if amount.minor_units < 1:
        raise Rejected(
            f"{amount.minor_units} is no money to move: ask for more than nothing",
            reason="NO_MONEY",
            code=grpc.StatusCode.INVALID_ARGUMENT,
        )
    found = connection.execute(
        select(account.c.currency_code, account.c.state).where(account.c.account_id == account_id)
    ).one_or_none()
    if found is None:
        raise Rejected(f"this bank has no account {account_id!r}", reason="NO_ACCOUNT", code=grpc.StatusCode.NOT_FOUND)
    if found.state != OPEN:
        raise Rejected(f"account {account_id!r} is {found.state}", reason="ACCOUNT_NOT_OPEN")
    if found.currency_code != amount.currency_code:
        raise Rejected(
            f"account {account_id!r} is kept in {found.currency_code}, not {amount.currency_code!r}",
            reason="OTHER_CURRENCY",
        )


def _add(connection: Connection, account_id: str, minor_units: int) -> None:
    connection.execute(
        update(account)
        .where(account.c.account_id == account_id)
        .values(minor_units=account.c.minor_units + minor_units)
    )


def _write_debit(
    connection: Connection, debit_id: str, account_id: str | None, minor_units: int, state: str, action_key: str
) -> None:
    connection.execute(
        insert(debit).values(
            debit_id=debit_id,
            account_id=account_id,
            minor_units=minor_units,
            state=state,
            saga_id=current_step().saga_id,
            action_key=action_key,
        )
    )
