"""A bank's service over real gRPC, called as a coordinator calls it: no money is made and none is lost."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import grpc
import pytest

from bank.service import Accounts
from bank.tables import FROZEN, TABLES, NewAccount, open_accounts
from bank.v1.bank_pb2 import (
    CompleteDebitRequest,
    CreditRequest,
    DebitRequest,
    FindCreditRequest,
    FindDebitRequest,
    Money,
    ReturnDebitRequest,
)
from bank.v1.bank_pb2_grpc import AccountsServiceStub
from hosting.serving import Service
from shop.demo.books import query
from tests.participants.serving import as_step, serving

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable
    from pathlib import Path

ACCOUNTS = [
    NewAccount("alice", 10_000),
    NewAccount("frozen", 500, state=FROZEN),
    NewAccount("yen", 500, currency_code="JPY"),
]
Code = grpc.StatusCode


@asynccontextmanager
async def bank(data: Path) -> AsyncGenerator[AccountsServiceStub]:
    """A bank with these accounts."""
    service = Service(TABLES, lambda database: Accounts(database.sessions), partial(open_accounts, accounts=ACCOUNTS))
    async with serving("bank-a", data, service=service) as channel:
        yield AccountsServiceStub(channel)


def eur(minor_units: int) -> Money:
    """So many cents."""
    return Money(currency_code="EUR", minor_units=minor_units)


def balance(data: Path, number: str) -> object:
    """What is on an account, with plain SQL."""
    ((amount,),) = query(data / "bank-a.db", f"SELECT minor_units FROM account WHERE account_id = '{number}'")
    return amount


def all_accounts(data: Path) -> object:
    """What is on all accounts."""
    return query(data / "bank-a.db", "SELECT account_id, minor_units FROM account ORDER BY 1")


async def refusal(call: Awaitable[object]) -> tuple[Code, str]:
    """How a call is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


async def test_money_leaves_is_returned_and_leaves_for_good(tmp_path: Path) -> None:
    """S2: each key once, whatever is repeated; what has arrived can't be returned."""
    async with bank(tmp_path) as accounts:
        request = DebitRequest(account_id="alice", amount=eur(3_000))
        made = [await accounts.Debit(request, metadata=as_step("debit", attempt=n)) for n in (1, 2)]
        assert (
            made[0]
            == made[1]
            == await accounts.FindDebit(FindDebitRequest(), metadata=as_step("debit", direction="lookup"))
        )
        assert balance(tmp_path, "alice") == 7_000
        undo = as_step("debit", direction="compensation")
        for attempt in (ReturnDebitRequest(debit_id=made[0].debit_id),) * 2:
            await accounts.ReturnDebit(attempt, metadata=undo)
        assert balance(tmp_path, "alice") == 10_000
        second = as_step("debit", saga_id="saga-2")
        debit_id = (await accounts.Debit(request, metadata=second)).debit_id
        await accounts.CompleteDebit(CompleteDebitRequest(debit_id=debit_id), metadata=as_step("complete"))
        late = accounts.ReturnDebit(
            ReturnDebitRequest(), metadata=as_step("debit", saga_id="saga-2", direction="compensation")
        )
        assert (await refusal(late))[0] is Code.FAILED_PRECONDITION
        again = accounts.CompleteDebit(CompleteDebitRequest(debit_id=debit_id), metadata=as_step("other"))
        assert (await refusal(again))[0] is Code.FAILED_PRECONDITION
    assert balance(tmp_path, "alice") == 7_000


async def test_a_debit_that_comes_after_its_return_is_refused(tmp_path: Path) -> None:
    """S4, V2: what was undone before it came never runs."""
    async with bank(tmp_path) as accounts:
        await accounts.ReturnDebit(ReturnDebitRequest(), metadata=as_step("debit", direction="compensation"))
        lookup = accounts.FindDebit(FindDebitRequest(), metadata=as_step("debit", direction="lookup"))
        assert (await refusal(lookup))[0] is Code.NOT_FOUND
        late = accounts.Debit(DebitRequest(account_id="alice", amount=eur(1)), metadata=as_step("debit"))
        code, why = await refusal(late)
        assert code is Code.FAILED_PRECONDITION
        assert "came after its compensation" in why
    assert balance(tmp_path, "alice") == 10_000


@pytest.mark.parametrize(
    ("account", "amount", "code", "why"),
    [
        ("alice", eur(10_001), Code.FAILED_PRECONDITION, "has less than that"),
        ("frozen", eur(1), Code.FAILED_PRECONDITION, "is frozen"),
        ("yen", eur(1), Code.FAILED_PRECONDITION, "is kept in JPY"),
        ("nobody", eur(1), Code.NOT_FOUND, "has no account"),
        ("alice", eur(0), Code.INVALID_ARGUMENT, "no money to move"),
        ("alice", eur(-5), Code.INVALID_ARGUMENT, "no money to move"),
    ],
)
async def test_what_no_bank_does(tmp_path: Path, account: str, amount: Money, code: Code, why: str) -> None:
    """A refusal is a clear no and moves nothing: no overdraft, no money out of nothing, nothing on a frozen account."""
    async with bank(tmp_path) as accounts:
        before = all_accounts(tmp_path)
        debit = accounts.Debit(DebitRequest(account_id=account, amount=amount), metadata=as_step("debit"))
        refused = await refusal(debit)
        assert refused[0] is code
        assert why in refused[1]
        if why != "has less than that":
            credit = accounts.Credit(CreditRequest(account_id=account, amount=amount), metadata=as_step("credit"))
            assert await refusal(credit) == refused
        found = accounts.FindCredit(FindCreditRequest(), metadata=as_step("credit", direction="lookup"))
        assert (await refusal(found))[0] is Code.NOT_FOUND
        assert all_accounts(tmp_path) == before


async def test_a_credit_is_there_once(tmp_path: Path) -> None:
    """S2: repeated with its key it is answered from memory, and its lookup finds it."""
    async with bank(tmp_path) as accounts:
        request = CreditRequest(account_id="alice", amount=eur(5))
        made = [await accounts.Credit(request, metadata=as_step("credit", attempt=n)) for n in (1, 2)]
        found = await accounts.FindCredit(FindCreditRequest(), metadata=as_step("credit", direction="lookup"))
    assert made == [found, found]
    assert balance(tmp_path, "alice") == 10_005


@pytest.mark.parametrize("text", ["", "alice", "alice:", "alice:-1", ":5", "alice:5:gone"])
def test_what_is_no_account(text: str) -> None:
    """The command line says what an account looks like."""
    with pytest.raises(ValueError, match="is no account: write NUMBER:MINOR_UNITS"):
        NewAccount.parse(text)
    assert NewAccount.parse("bob:7:closed") == NewAccount("bob", 7, state="closed")
